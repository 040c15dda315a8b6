"""What a GPU product can do, as its maker states it: memory, power and dense matrix rates."""

# Annotations are not postponed here: as text, every one would be compiled again at every start.
from gpusetup.model.record import MatrixFile, Record


class GpuFigures(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The figures of one or several products that share them; None: nobody was found who states it."""

    names: tuple[str, ...]
    """Names in gpus.json."""
    memory_gb: int | float | None = None
    memory_type: str | None = None
    bandwidth_gbs: int | float | None = None
    """Of its memory, GB/s."""
    power_w: int | float | None = None
    """The highest, in watts."""
    nvlink_gbs: int | float | None = None
    """All links of one GPU, both directions together, GB/s; 0: it has none."""
    fp16: int | float | None = None
    """Matrix rates in TFLOP/s, dense (without sparsity), sums kept in FP32."""
    bf16: int | float | None = None
    fp8: int | float | None = None


class GpuFiguresFile(MatrixFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """gpu_figures.json."""

    gpus: tuple[GpuFigures, ...]
