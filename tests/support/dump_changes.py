# SPDX-License-Identifier: Apache-2.0
"""Changes made by hand to a real msprobe dump: functions of its `data`, for `edit`."""

import math
import re

from tests.support.dumps import tensors

UP = "Module.model.layers.1.mlp.up_proj.Linear"
# Modules that were already running when up_proj was called: only their outputs come after it.
AROUND_UP = ("layers.1.mlp.Qwen2MLP.forward", "layers.1.Qwen2DecoderLayer.forward", "Qwen2Model.forward")


def scale(tensor, factor):
    if tensor.get("Norm") is None:
        return  # token ids and masks stay what they are
    for key in ("Max", "Min", "Mean", "Norm"):
        if tensor.get(key) is not None:
            tensor[key] *= factor


def scaled(names, factor, roles=("input_args", "input_kwargs", "input", "output")):
    """A change: all tensors of these roles of the entries whose name contains one of `names`."""

    def change(data):
        for name, entry in data.items():
            if any(part in name for part in names):
                for role in roles:
                    for tensor in tensors(entry.get(role, [])):
                        scale(tensor, factor)

    return change


def both(*changes):
    def change(data):
        for one in changes:
            one(data)

    return change


def from_up(at, after):
    """Change the output of up_proj's forward by `at`, and everything that comes after it by `after`."""

    def change(data):
        names = list(data)
        start = next(place for place, name in enumerate(names) if name.startswith(f"{UP}.forward"))
        at([names[start]], ["output"])(data)
        for name in names[start + 1 :]:
            outputs_alone = any(part in name for part in AROUND_UP)
            after([name], ["output"] if outputs_alone else ["input_args", "input_kwargs", "input", "output"])(
                {name: data[name]}
            )

    return change


def faulty_up(factor=1.02, after=1.01):
    """up_proj's output is off, and so is everything after it."""
    return from_up(lambda names, roles: scaled(names, factor, roles), lambda names, roles: scaled(names, after, roles))


def moved(data):
    """Every weight by a learning rate of 1e-5, as a few updates do; what it does to the activations is a little more."""
    for place, (name, entry) in enumerate(data.items()):
        if ".forward." in name:
            for tensor in tensors(entry["parameters"]):
                for key in ("Max", "Min", "Mean"):
                    tensor[key] += 1e-5 * (-1) ** place
                tensor["Norm"] *= 1 + 2e-6 * (-1) ** place
        scaled([name], 1 + 1e-4 * (1 + place % 3))({name: entry})


def renamed(data):
    for name in list(data):
        new = re.sub(r"^Module\.model", "Module._fsdp_wrapped_module.model", name)
        data[re.sub(r"\.(\w+)\.(forward|backward|parameters_grad)\.", r".FSDP\1.\2.", new)] = data.pop(name)


def with_nan(names, roles, value=math.nan):
    def change(data):
        for name, entry in data.items():
            if any(part in name for part in names):
                for role in roles:
                    for tensor in tensors(entry.get(role, [])):
                        if tensor.get("Norm") is not None:
                            tensor.update(Max=value, Mean=value, Norm=abs(value))
                            tensor["Min"] = value if math.isnan(value) else tensor["Min"]

    return change
