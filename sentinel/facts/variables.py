# SPDX-License-Identifier: Apache-2.0
"""The environment variables that change numbers, kernels, communication or scheduling; no others are read."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sentinel.facts.secrets import clean_value

_WANTED = re.compile(
    r"(HCCL|LCCL|ATB|ASDOPS|ASCEND|ACLNN|ACL|NPU|VLLM|SGLANG|NCCL|TORCH|PYTORCH|CUDA|CUBLAS|CUDNN|NVTE|NVIDIA_TF32|"
    r"FLASH_ATTENTION|FLASHINFER|TRITON|XFORMERS|MEGATRON|MINDSPEED|VERL|INF_NAN|TE)_.*"
    r"|CLOSE_MATMUL_K_SHIFT|PYTHONHASHSEED|TASK_QUEUE_ENABLE|CPU_AFFINITY_CONF|COMBINED_ENABLE|"
    r"MULTI_STREAM_MEMORY_REUSE|OMP_NUM_THREADS|MKL_NUM_THREADS|MKL_CBWR|TOKENIZERS_PARALLELISM|TF32_OVERRIDE|"
    r"USE_V1|SENTINEL_SEED_ALL|RANK|WORLD_SIZE|LOCAL_RANK|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|LCAL_COMM_ID"
)
_PATHS = re.compile(r"(PATH|HOME|DIR|FILE|ROOT|OPP)(_|$)")


def variable_facts(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that matter, by name; credentials cut out. What only says where files lie is left out."""
    return {
        name: clean_value(name, environment[name])
        for name in sorted(environment)
        if _WANTED.fullmatch(name) and not _PATHS.search(name)
    }
