# SPDX-License-Identifier: Apache-2.0
"""Files of a model: hashed, sampled, remembered; what cannot be read is named."""

import hashlib
import json
import os
import struct

import pytest

from sentinel.errors import BaselineError
from sentinel.sources import weights
from sentinel.sources.weights import model_facts, model_fingerprint


def test_every_file_of_a_model_is_hashed(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x").write_text("hidden")
    (tmp_path / "b.safetensors").write_bytes(b"weights" * 1_000_000)
    (tmp_path / "sub" / "a.json").write_text("{}")
    said = []

    found = model_fingerprint(tmp_path, said.append)

    assert list(found["files"]) == ["b.safetensors", "sub/a.json"]
    assert found["files"]["b.safetensors"] == {
        "bytes": 7_000_000,
        "sha256": hashlib.sha256(b"weights" * 1_000_000).hexdigest(),
    }
    assert said[-1] == "hashing the model, 2 of 2 files"


def test_a_model_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BaselineError, match="no such model folder"):
        model_fingerprint(tmp_path / "nowhere")
    with pytest.raises(BaselineError, match="holds no model files"):
        model_fingerprint(tmp_path)


def shard(path, tensors):
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for name, (dtype, shape) in tensors.items()
    }
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"weights")


def test_a_second_look_reads_no_file_again(tmp_path, monkeypatch):
    folder, cache = tmp_path / "model", tmp_path / "cache" / "hashes.json"
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(b"1" * 1000)
    first = model_facts(folder, cache=cache)
    read = []
    real = weights.hash_file
    monkeypatch.setattr(weights, "hash_file", lambda path: read.append(path.name) or real(path))

    assert model_facts(folder, cache=cache) == first
    assert read == []
    (folder / "a.safetensors").write_bytes(b"2" * 1000)
    assert model_facts(folder, cache=cache) != first
    assert read == ["a.safetensors"]


def test_a_file_that_was_put_in_anothers_place_is_hashed_again(tmp_path):
    """Same name, size and time: only the inode tells."""
    cache = tmp_path / "hashes.json"
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"1" * 100)
    first = model_facts(folder, cache=cache)
    (folder / "b").write_bytes(b"2" * 100)
    status = (folder / "a.bin").stat()
    os.utime(folder / "b", ns=(status.st_atime_ns, status.st_mtime_ns))
    (folder / "b").replace(folder / "a.bin")

    assert model_facts(folder, cache=cache) != first


def test_a_damaged_cache_is_none(tmp_path):
    cache = tmp_path / "hashes.json"
    cache.write_text("[1, 2")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a.bin").write_bytes(b"1")

    assert model_facts(tmp_path / "model", cache=cache)["files"]["a.bin"]["bytes"] == 1
    assert len(json.loads(cache.read_text())) == 1


def test_the_quick_mode_samples_large_files_and_says_so(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(bytes(8_000_000))
    (tmp_path / "config.json").write_text("{}")

    quick = model_facts(tmp_path, quick=True)["files"]

    assert set(quick["a.safetensors"]) == {"bytes", "sampled"}
    assert "sha256" in quick["config.json"]
    content = bytearray(8_000_000)
    content[-1] = 1
    (tmp_path / "a.safetensors").write_bytes(content)
    assert model_facts(tmp_path, quick=True)["files"]["a.safetensors"] != quick["a.safetensors"]


def test_dangling_links_and_files_that_may_not_be_read_are_named_and_the_rest_is_hashed(tmp_path):
    (tmp_path / "a.safetensors").symlink_to(tmp_path / "blob")
    (tmp_path / "b.safetensors").write_bytes(b"x")
    (tmp_path / "fifo").symlink_to("/proc/self/mem")

    files = model_facts(tmp_path)["files"]

    assert files["a.safetensors"] == {"unreadable": "a link to a file that is not there"}
    assert "sha256" in files["b.safetensors"]
    assert "unreadable" in files["fifo"]
    with pytest.raises(BaselineError, match="a link to a file that is not there"):
        model_fingerprint(tmp_path)


def test_links_to_blobs_are_followed(tmp_path):
    """The cache of a hub keeps its files that way."""
    (tmp_path / "blob").write_bytes(b"weights")
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "a.safetensors").symlink_to(tmp_path / "blob")

    assert model_facts(folder)["files"]["a.safetensors"]["sha256"] == hashlib.sha256(b"weights").hexdigest()


def test_a_model_id_is_told_as_that(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BaselineError, match="a model id is not looked up"):
        model_facts(weights.Path("Qwen/Qwen2.5-0.5B"))


def test_tensors_are_counted_by_dtype_without_torch(tmp_path):
    shard(tmp_path / "1.safetensors", {"a": ("BF16", [2, 2]), "b": ("F32", [1])})
    shard(tmp_path / "2.safetensors", {"c": ("BF16", [3])})
    (tmp_path / "3.safetensors").write_bytes(b"\xff" * 20)

    found = model_facts(tmp_path)["tensors"]

    assert (found["count"], found["dtypes"]) == (3, {"BF16": 2, "F32": 1})
    shard(tmp_path / "2.safetensors", {"c": ("F16", [3])})
    assert model_facts(tmp_path)["tensors"]["index"] != found["index"]


def test_the_configuration_of_the_model_is_kept_as_values(tmp_path):
    (tmp_path / "config.json").write_text('{"eos_token_id": 5, "_name_or_path": "/home/alice/m"}')
    (tmp_path / "generation_config.json").write_text("{broken")

    assert model_facts(tmp_path)["documents"] == {"config.json": {"eos_token_id": 5, "_name_or_path": "/home/<user>/m"}}
