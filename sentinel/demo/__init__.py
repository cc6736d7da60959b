# SPDX-License-Identifier: Apache-2.0
"""The main job on a real verl run on this machine: `sentinel demo`.

    scenarios   what is run, what each run must show, planted against found
      |- plans      the fault that is planted: STAGE:MODULE:KIND=SIZE@STEP, asked for or drawn from a seed
      |- runs       one verl run: its hydra overrides, environment, log and metrics
      |- cluster    a private Ray cluster, ended by closing its standard input
      |- assets     a tiny model trained on text, a tokenizer and prompts; made here, no network
      `- kit/       stands in for the outside world inside verl's processes; knows verl, not Sentinel

Sentinel cannot see the plan: it travels to the kit in a variable of the kit's own, and neither the
trainer side nor the daemon may import anything from here (an import contract).
"""
