# SPDX-License-Identifier: Apache-2.0
"""A verl worker process in miniature: real torch modules behind verl's attribute names, no Ray."""

import types

import torch


class TinyModel(torch.nn.Module):
    """Five named modules: msprobe skips the first and the last one inside a verl process."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.first = torch.nn.Linear(8, 8)
        self.middle = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
        self.head = torch.nn.Linear(8, 4)

    def forward(self, ids):
        return self.head(self.middle(self.first(self.embed(ids))))


class Engine:
    def __init__(self, model):
        self.module = model


class TrainingWorker:
    """Like verl's: `infer_batch` for log-probs and values, `train_mini_batch` for an update."""

    def __init__(self, model, model_type="language_model"):
        self.engine = Engine(model)
        self.config = types.SimpleNamespace(model_type=model_type)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.rank = 0

    def infer_batch(self, data):
        with torch.no_grad():
            return self.engine.module(data["ids"])

    def train_mini_batch(self, data):
        loss = self.engine.module(data["ids"]).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


class ActorRolloutRefWorker:
    def __init__(self):
        self.rank = 0
        self.actor = TrainingWorker(TinyModel())
        self.ref = TrainingWorker(TinyModel())

    def compute_log_prob(self, data):
        return self.actor.infer_batch(data)

    def compute_ref_log_prob(self, data):
        return self.ref.infer_batch(data)

    def update_actor(self, data):
        return self.actor.train_mini_batch(data)


class WorkerActor:
    """The Ray actor of colocated workers."""

    def __init__(self, critic=False):
        torch.manual_seed(0)
        self.worker_dict = {"actor_rollout_ref": ActorRolloutRefWorker()}
        if critic:
            self.worker_dict["critic"] = TrainingWorker(TinyModel(), "value_model")
        self.data = {"ids": torch.arange(12).reshape(3, 4) % 16}

    @property
    def main(self):
        return self.worker_dict["actor_rollout_ref"]

    def run_step(self):
        """One RL step: log-probs, reference, (values, critic,) update. Returns the actor's loss."""
        self.main.compute_log_prob(self.data)
        self.main.compute_ref_log_prob(self.data)
        critic = self.worker_dict.get("critic")
        if critic is not None:
            critic.infer_batch(self.data)
            critic.train_mini_batch(self.data)
        return self.main.update_actor(self.data)

    def models(self):
        main = self.main
        return [
            main.actor.engine.module,
            main.ref.engine.module,
            *([self.worker_dict["critic"].engine.module] if "critic" in self.worker_dict else []),
        ]


def hooks_on(models):
    """Every hook table entry and instance-level forward of some models; zero on untouched ones."""
    tables = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(
        sum(len(getattr(module, table)) for table in tables) + ("forward" in vars(module))
        for model in models
        for module in model.modules()
    )
