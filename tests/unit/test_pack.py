"""D5: a damaged, missing or foreign file is one clear sentence, and then aten."""

import json
import warnings

import pytest
import torch

import aotconv
from aotconv.pack import MAGIC, Pack, PackError, write_pack
from aotconv.problem import forward_problem
from aotconv.runtime import AotconvWarning, Runtime
from aotconv.target import Device
from runtime_rig import ARTIFACTS, Stub, artifact, key, make_folder, make_runtime

PACK, TABLE = "packs/sm_90a.pack", "tables/sm_90a.json"


@pytest.fixture(autouse=True)
def no_capture(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)  # a CPU build of torch cannot say


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "generated")


def heard(runtime, words=None):
    """(plan, sentences) of two calls of different sizes: each sentence must come once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plans = [runtime.plan(words or key()), runtime.plan(words or key(x=(3, 16, 9, 9)))]
    assert all(w.category is AotconvWarning for w in caught)
    return plans, [str(w.message) for w in caught]


def change(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data(path.read_bytes()))


def flipped(at):
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def header(**more):
    return lambda data: write_pack(None, {"target": "sm_90a", "format": 1, **more}, ARTIFACTS)


def other_abi(data):
    import aotconv.pack as pack

    before, pack.LAUNCH_ABI = pack.LAUNCH_ABI, 0
    try:
        return write_pack(None, {"target": "sm_90a", "format": 1}, ARTIFACTS)
    finally:
        pack.LAUNCH_ABI = before


def unknown_field(data):
    import hashlib

    size = int.from_bytes(data[8:16], "little")
    index = json.loads(data[48 : 48 + size])
    index["artifacts"][0]["a_later_idea"] = 1
    text = json.dumps(index).encode()
    return MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text + data[48 + size :]


DAMAGE = {
    "no bytes": (PACK, b"", "cannot be read"),
    "cut in the index": (PACK, lambda data: data[:200], "does not match its own SHA-256"),
    "one byte of the index": (PACK, flipped(100), "does not match its own SHA-256"),
    "one byte of its length": (PACK, flipped(14), "does not match its own SHA-256"),
    "older magic": (PACK, lambda data: b"AOTPACK0" + data[8:], "AOTPACK0"),
    "other launch ABI": (PACK, other_abi, "launch ABI 0, this aotconv speaks 1"),
    "a field of another version": (PACK, unknown_field, "a_later_idea"),
    "another target's pack": (PACK, header(target="sm_80"), "sm_80, expected sm_90a"),
    "table cut": (TABLE, lambda data: data[:-20], "is not JSON"),
    "table is no table": (TABLE, b"[]", "format None"),
    "table of another format": (TABLE, lambda data: data.replace(b'"format": 1', b'"format": 9'), "format 9, this aotconv reads 1"),
    "table without admissions": (TABLE, lambda data: data.replace(b"admitted", b"permitted"), "format 1"),
    "dispatch of another format": ("dispatch.py", lambda data: data.replace(b"FORMAT = 1", b"FORMAT = 7"), "format 7"),
    "dispatch cut": ("dispatch.py", lambda data: data[:-30], "device 0"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_one_sentence_and_aten(name, folder):
    path, damage, words = DAMAGE[name]
    assert heard(make_runtime(folder))[0][0]  # sound: a plan
    change(folder / path, damage)
    plans, sentences = heard(make_runtime(folder))
    assert plans == [None, None]
    assert len(sentences) == 1 and words in sentences[0], sentences


@pytest.mark.parametrize("name", (PACK, "dispatch.py"))
def test_a_deleted_file_is_named(name, folder):
    (folder / name).unlink()
    plans, sentences = heard(make_runtime(folder))
    assert plans == [None, None] and len(sentences) == 1 and name.split("/")[-1] in sentences[0]


def test_without_a_table_nothing_is_admitted(folder):
    (folder / TABLE).unlink()
    runtime = make_runtime(folder)
    assert heard(runtime) == ([None, None], [])
    assert "not admitted" in str(runtime.library(0).choose(forward_problem((2, 16, 9, 9), (16, 16, 3, 3))).reasons)


@pytest.mark.parametrize("damage, words", [(lambda data: data[: len(data) - 40], "ends past its end"), (flipped(-20), "does not match its SHA-256")])
def test_a_damaged_binary_is_never_loaded(damage, words, tmp_path):
    folder = make_folder(tmp_path / "a", ARTIFACTS[:1])
    change(folder / PACK, damage)
    native = Stub()
    plans, sentences = heard(make_runtime(folder, native=native))
    assert (plans, native.loaded) == ([None, None], [])
    assert len(sentences) == 1 and words in sentences[0] and "reinstall" in sentences[0]
    assert len(Pack(folder / PACK).faults()) == 1


def test_half_a_pack_serves_what_is_whole(tmp_path):
    """The index stands first: binaries before the cut are whole and checked."""
    artifacts = (*(artifact(tile=(m, 64, 32)) for m in (16, 32)), artifact("fwd2d_any"))
    folder = make_folder(tmp_path / "a", artifacts)
    change(folder / PACK, lambda data: data[:-64])
    assert len(Pack(folder / PACK).faults()) == 1


def test_a_driver_that_cannot_load_is_one_sentence(folder):
    runtime = make_runtime(folder, native=Stub(fails="cuModuleLoadData failed with error 200 (invalid image)"))
    plans, sentences = heard(runtime)
    assert plans == [None, None] and len(sentences) == 1
    assert "error 200" in sentences[0] and "aten serves" in sentences[0]
    assert runtime.fault == sentences[0]


def test_d10_a_driver_too_old_is_told_what_is_needed(folder):
    plans, sentences = heard(make_runtime(folder, native=Stub(driver=11_080)))
    assert plans == [None, None] and len(sentences) == 1
    assert "11080" in sentences[0] and "12000" in sentences[0]


@pytest.mark.parametrize("device, name", [(Device("cuda", (10, 3)), "sm_103"), (Device("cuda", (7, 5)), "sm_75"), (Device("hip", arch="gfx906"), "gfx906")])
def test_an_unknown_architecture_is_named(device, name, folder):
    plans, sentences = heard(make_runtime(folder, device))
    assert plans == [None, None] and len(sentences) == 1
    assert name in sentences[0] and "sm_80, sm_90a" in sentences[0]


def test_a_target_whose_pack_was_not_shipped(folder):
    plans, sentences = heard(make_runtime(folder, Device("cuda", (8, 0), "", 108, 166_912)))
    assert plans == [None, None] and len(sentences) == 1 and "sm_80.pack" in sentences[0]


def test_one_device_in_trouble_leaves_the_other_alone(folder):
    runtime = make_runtime(folder)
    sound = runtime.device
    runtime.device = lambda index: sound(0) if index == 0 else Device("cuda", (7, 5))
    with pytest.warns(AotconvWarning, match="device 1"):
        assert runtime.plan(key(device=1)) is None
    assert runtime.plan(key(device=0))


def test_a_missing_launcher_is_one_sentence(tmp_path):
    runtime = Runtime(make_folder(tmp_path / "a"))
    with pytest.warns(AotconvWarning, match="launcher.so.*every convolution is aten's"):
        assert runtime.start() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert runtime.start() is None


def test_a_warning_made_an_error_does_not_cross_the_planner(folder):
    change(folder / PACK, b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_runtime(folder).plan(key()) is None


def test_no_kernel_is_loaded_during_a_capture(folder, monkeypatch):
    runtime = make_runtime(folder)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.warns(AotconvWarning, match="preload"):
        assert runtime.plan(key()) is False
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    plan = runtime.plan(key())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert runtime.plan(key()) == plan


def test_verify_finds_each_fault(folder, monkeypatch):
    runtime = make_runtime(folder)
    monkeypatch.setattr("aotconv.operators.runtime", runtime)
    (folder / "launcher.so").write_bytes(b"")
    assert aotconv.verify() == []
    change(folder / PACK, flipped(-20))
    change(folder / TABLE, lambda data: data.replace(ARTIFACTS[0][0].sha256.encode(), b"0" * 64))
    (folder / "launcher.so").unlink()
    said = aotconv.verify()
    assert len(said) == 3 and all(str(folder) in sentence and "reinstall" in sentence for sentence in said)
    (folder / PACK).unlink()
    assert any("has no" in sentence for sentence in aotconv.verify())


def test_equal_binaries_are_stored_once(tmp_path):
    from dataclasses import replace

    first, data = ARTIFACTS[0]
    twin = replace(first, variant="another-name")
    one = len(write_pack(None, {"target": "sm_90a"}, ((first, data),)))
    path = tmp_path / "p"
    path.write_bytes(write_pack(None, {"target": "sm_90a"}, ((first, data), (twin, data))))
    assert path.stat().st_size < one + len(data) + 64 * 20
    pack = Pack(path)
    assert pack.artifacts[0].offset == pack.artifacts[1].offset and pack.faults() == []
    assert bytes(pack.binary(pack.artifacts[1])) == data


def test_a_pack_that_is_no_file(tmp_path):
    with pytest.raises(PackError, match="cannot be read"):
        Pack(tmp_path)
