# SPDX-License-Identifier: Apache-2.0
"""Real RL runs, small enough to make by the thousand, with and without planted faults.

task.py      the problem: symbol strings to be reversed, with a rule reward
model.py     a decoder of 0.1 to 0.4 M parameters, with several kernels for the same arithmetic
rollout.py   the rollout engine: its own weights, bf16, other kernels
trainer.py   GRPO, and PPO with a critic; one step walks the stages of verl's data flow
losses.py    advantages, policy and value losses, Adam
metrics.py   what a step reports, under verl's metric names
faults.py    what can be planted, where, and at which sizes; effects.py does it
plan.py      which runs make a corpus: groups, references, twins, clean runs, faults; three splits
strength.py  how visible a planted fault is, by a fixed definition that knows nothing of the engine
store.py     the corpus on disk
build.py     runs the plan in parallel and writes the corpus
limits.py    measures the limits of the metric catalogue on clean runs
page.py      the page of the docs, from a score; plots.py draws its plots

Not part of the wheel. `python -m bench.corpus build --out DIR` makes one; `sentinel evaluate DIR` scores the engine on it.
"""
