# SPDX-License-Identifier: Apache-2.0
"""The outside world of the demo: what makes stock verl run on a CPU, and what goes wrong in it.

    plugin          named in VERL_USE_EXTERNAL_MODULES; loaded in every process of a run, patches lazily
    cpu_platform    the accelerator platform `cpu`
    rollout_engine  the rollout backend `democpu`: its own bf16 copy of the weights, another attention kernel
    reward          the rule reward
    faults          plants the fault that VERL_DEMO_FAULT describes

Knows verl, not Sentinel (an import contract): whatever Sentinel finds here, it finds as it would in a foreign run.
"""
