"""tools/check_cuda.py: what it finds in what cuobjdump prints."""
import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("check_cuda", ROOT / "tools/check_cuda.py")
check_cuda = importlib.util.module_from_spec(spec)
sys.modules["check_cuda"] = check_cuda
spec.loader.exec_module(check_cuda)

LINEAR = "void redline::tiles::run_stage<redline::tiles::BasicLinear<redline::tiles::detail::DenseRows, 64> >(redline::tiles::ProgramTables, int)"
NORM = "void redline::tiles::run_stage<redline::tiles::Norm>(redline::tiles::ProgramTables, int)"
WHOLE = "redline::tiles::(anonymous namespace)::run_whole_step(redline::tiles::ProgramTables)"
CODE = f"""
\t\tFunction : {LINEAR}
        /*0100*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0108*/                   IMMA.16832.S8.S8 R4, R8.ROW, R12.COL, R4 ;
        /*0110*/               @!P0 UBLKCP.S.G [UR4], [UR6], UR8 ;
        /*0120*/                   SYNCS.EXCH.64 URZ, [UR4], UR6 ;
\t\tFunction : {NORM}
        /*0100*/                   FADD R1, R2, R3 ;
"""


def resources(*kernels):
    return "".join(f" Function {symbol}:\n  REG:{registers} STACK:{stack} SHARED:1024 LOCAL:0\n" for symbol, registers, stack in kernels)


def found(*kernels, code=CODE):
    return [line for line in check_cuda.findings(check_cuda.read_kernels(resources(*kernels), code)) if "no such kernel" not in line]


def test_names_are_those_of_the_kernels():
    assert [check_cuda.kernel_name(symbol) for symbol in (LINEAR, NORM, WHOLE)] == ["Linear", "Norm", "persistent"]


def test_good_code_passes():
    assert found((LINEAR, 96, 0), (NORM, 32, 0)) == []


def test_stack_frames_and_registers_are_found():
    lines = found((LINEAR, 96, 32), (NORM, 240, 0))
    assert len(lines) == 1 and lines[0].startswith("Linear: a stack frame of 32 bytes")
    assert found((LINEAR, 200, 0)) == ["Linear: 200 registers, at most 168"]


def test_missing_instructions_are_found():
    assert found((LINEAR, 96, 0), code=CODE.replace("HMMA.16816.F32.BF16", "HMMA.16816.F32")) == ["Linear: has no HMMA.16816.F32.BF16"]
    assert found((LINEAR, 96, 0), code=CODE.replace("UBLKCP", "LDG.E")) == ["Linear: has no UBLKCP"]


def test_large_code_is_found(monkeypatch):
    assert check_cuda.source_sizes("Fatbin elf code:\n" + CODE + "Fatbin elf code:\nnone\nFatbin elf code:\n" + CODE) == [5, 5]
    monkeypatch.setattr(check_cuda, "MAX_KERNEL_SIZE", 2)
    assert found((LINEAR, 96, 0)) == ["Linear: 4 instructions, at most 2: compiling it takes too long"]


def test_code_before_sm_90_copies_by_lanes():
    def lines(code):
        kernels = check_cuda.read_kernels(resources((LINEAR, 96, 0)), code)
        return [line for line in check_cuda.findings(kernels, "sm_80") if "no such kernel" not in line]

    older = CODE.replace("UBLKCP.S.G [UR4], [UR6], UR8", "LDGSTS.E.BYPASS.128 [R4], [R6.64]")
    assert lines(older) == ["Linear: has no ARRIVES.LDGSTSBAR"]
    assert lines(older.replace("SYNCS.EXCH.64", "ARRIVES.LDGSTSBAR.64")) == []


def test_atomics_have_another_name_before_sm_90():
    assert "REDG.E.ADD.64.STRONG.GPU" in check_cuda.required("persistent", "sm_90a")
    older = check_cuda.required("persistent", "sm_80")
    assert "RED.E.ADD.64.STRONG.GPU" in older and "REDG.E.ADD.64.STRONG.GPU" not in older


def test_missing_kernels_are_found():
    lines = list(check_cuda.findings(check_cuda.read_kernels(resources((NORM, 32, 0)), CODE)))
    assert "persistent: there is no such kernel" in lines
