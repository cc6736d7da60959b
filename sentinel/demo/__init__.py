# SPDX-License-Identifier: Apache-2.0
"""The main job on a real verl run on this machine: `sentinel demo`.

    course          reference run and twin, bundle, watched runs, what Sentinel said of each
      |- scenarios  what each run must show; planted against found
      |- plans      the fault that is planted: STAGE:MODULE:KIND=SIZE@STEP, asked for or drawn from a seed
      |- verbs      Sentinel's own commands, called as a user would
      |- places     the folder of a demo
      |- runs       one verl run: its process, progress, files; for tests and benchmarks as well
      |- overrides  what a run is asked to be, as hydra overrides and environment
      |- cluster    a private Ray cluster, ended by closing its standard input
      |- assets     a tiny model trained on text, a tokenizer and prompts; made here, no network
      `- kit/       stands in for the outside world inside verl's processes; knows verl, not Sentinel

Sentinel cannot see the plan: it travels to the kit in a variable of the kit's own, and neither the
trainer side nor the daemon may import anything from here (an import contract).
"""
