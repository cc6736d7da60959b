# SPDX-License-Identifier: Apache-2.0
"""Module gradients without a mark on the graph: what is reported, and that training keeps its bits."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="this is about autograd")

from sentinel.trainer.backward import QuietBackwardHook  # noqa: E402

pytestmark = pytest.mark.torch


class Norm(torch.nn.Module):
    """Reads its input twice, as RMSNorm does."""

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Attention(torch.nn.Module):
    """Takes keywords, and returns weights that it also uses itself."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(16, 16) for _ in range(3))

    def forward(self, *, hidden):
        weights = torch.softmax(self.q(hidden) @ self.k(hidden).transpose(-1, -2), -1)
        return weights @ self.v(hidden), weights


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention, self.second = Norm(), Attention(), Norm()
        self.up, self.gate, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

    def forward(self, x):
        x = x + self.attention(hidden=self.norm(x))[0]
        y = self.second(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), Block(), Block(), torch.nn.Linear(16, 4))


def data():
    return torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))


def gradients_of(net):
    net(data()).square().mean().backward()
    return [parameter.grad.clone() for parameter in net.parameters()]


def hook_quietly(net, seen, failures=None):
    """Install the quiet hooks the way msprobe installs torch's."""
    book = []
    for name, module in net.named_modules():
        if not name:
            continue

        def before(module, args, name=name):
            hook = QuietBackwardHook(
                book,
                (failures if failures is not None else []).append,
                module,
                [functools.partial(lambda n, _, i, o: seen.__setitem__(n, (i, o)), name)],
            )
            module._quiet = hook
            return hook.setup_input_hook(args)

        def after(module, _, output):
            return module._quiet.setup_output_hook(output)

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
    return book


def test_the_gradients_of_training_keep_every_bit():
    plain, watched = model(), model()
    hook_quietly(watched, {})

    assert all(torch.equal(a, b) for a, b in zip(gradients_of(plain), gradients_of(watched), strict=True))


def test_torchs_own_hook_does_not_keep_them_which_is_why_this_one_exists():
    plain, hooked = model(), model()
    for module in hooked.modules():
        module.register_full_backward_hook(lambda *_: None)

    with pytest.warns(UserWarning, match="Full backward hook"):
        changed = gradients_of(hooked)

    assert not all(torch.equal(a, b) for a, b in zip(gradients_of(plain), changed, strict=True))


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_what_is_reported_is_what_torchs_own_hook_reports():
    quiet, own = {}, {}
    net = model()
    hook_quietly(net, quiet)
    gradients_of(net)
    net = model()
    for name, module in net.named_modules():
        if name:
            module.register_full_backward_hook(functools.partial(lambda n, _, i, o: own.__setitem__(n, (i, o)), name))
    gradients_of(net)

    assert set(quiet) == set(own)
    for name, (inputs, outputs) in own.items():
        wanted_inputs = [gradient for gradient in inputs if gradient is not None]
        assert [g is None for g in quiet[name][1]] == [g is None for g in outputs], name
        for ours, theirs in zip(
            [*quiet[name][0], *(g for g in quiet[name][1] if g is not None)],
            [*wanted_inputs, *(g for g in outputs if g is not None)],
            strict=True,
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7, msg=name)


def test_a_hook_that_fails_does_not_reach_the_backward_pass():
    failures = []

    def explode(*_):
        raise OSError("no space left")

    net, plain = model(), model()
    book = []
    hook = QuietBackwardHook(book, failures.append, net[1], [explode])
    net[1].register_forward_pre_hook(lambda _, args: hook.setup_input_hook(args))
    net[1].register_forward_hook(lambda _m, _a, output: hook.setup_output_hook(output))

    assert all(torch.equal(a, b) for a, b in zip(gradients_of(plain), gradients_of(net), strict=True))
    assert [str(failure) for failure in failures] == ["no space left"]


def test_nothing_is_hooked_without_a_gradient_to_come():
    seen = {}
    net = model()
    book = hook_quietly(net, seen)
    with torch.no_grad():
        net(data())
    for hook in book:
        hook.flush()

    assert seen == {}


def test_a_module_whose_input_gets_no_gradient_is_still_reported_when_the_stage_ends():
    seen = {}

    class Half(torch.nn.Module):
        def forward(self, x, unused):
            return x * 2, unused * 3

    half = Half()
    book = []
    hook = QuietBackwardHook(book, [].append, half, [lambda _, i, o: seen.update(i=i, o=o)])
    half.register_forward_pre_hook(lambda _, args: hook.setup_input_hook(args))
    half.register_forward_hook(lambda _m, _a, output: hook.setup_output_hook(output))
    x, unused = (torch.ones(2, requires_grad=True) * 1 for _ in range(2))

    used, _ = half(x, unused)
    used.sum().backward()
    assert seen == {}
    for hook in book:
        hook.flush()

    assert seen["i"][0].tolist() == [2.0, 2.0]
    assert seen["i"][1] is None
    assert seen["o"][1] is None
