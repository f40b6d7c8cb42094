"""NetCDF files and Zarr stores: reading and writing datasets, and trees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar

import xarray as xr

from lockquack.errors import FileError, LockquackError, OverwriteError, in_brief, naming
from lockquack.files.places import AUTHOR, OWN, require_place, written_whole
from lockquack.files.sizes import require_possible_size
from lockquack.files.unfailing import unfailing
from lockquack.parallel.cluster import active_client

#: Attribute by which a file is known to hold a combination, of whichever version.
FORMAT_KEY = "lockquack_format"

#: How files of HDF5 begin.
_HDF5 = b"\x89HDF\r\n\x1a\n"

T = TypeVar("T", xr.Dataset, xr.DataTree)
Engine = Literal["zarr", "h5netcdf", "scipy"]


def read_tree(path: str | Path) -> xr.DataTree:
    """Read a NetCDF file or Zarr store with groups."""
    return _read(xr.open_datatree, _existing(path))


def open_tree(path: str | Path) -> xr.DataTree:
    """Open a NetCDF file or Zarr store with groups, without reading the numbers in it."""
    path = _existing(path)
    with explaining(path):
        require_possible_size(path, to_memory=False)
        return xr.open_datatree(path, cache=False, **_reader(path, flat=False))


def read_dataset(path: str | Path) -> xr.Dataset:
    """Read a NetCDF file or Zarr store without groups."""
    return _read(xr.open_dataset, _existing(path))


def is_combination(attrs: Mapping[Any, Any]) -> bool:
    """Whether a file with these attributes holds a combination, of this version or another."""
    return FORMAT_KEY in attrs


def _existing(path: str | Path) -> Path:
    if not isinstance(path, str | PathLike):
        raise LockquackError(f"The path of a file is a string or a Path; got {path!r}.")
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    return path


def _read(opener: Callable[..., T], path: Path) -> T:
    with explaining(path):
        require_possible_size(path, to_memory=True)
        with opener(path, **_reader(path, flat=opener is xr.open_dataset)) as opened:
            return opened.load()


def _reader(path: Path, *, flat: bool) -> dict[str, Any]:
    engine = _engine(path, flat=flat)
    # Stores with and without consolidated metadata are read alike, and neither is remarked on.
    return {"engine": engine, **({"consolidated": False} if engine == "zarr" else {})}


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Say which file cannot be read, whatever a library makes of it.

    What is wrong with a damaged file is for each of them another kind of error.
    """
    with naming(str(path)):
        try:
            yield
        except (LockquackError, ImportError, PermissionError):
            raise
        except Exception as error:
            if find_spec("h5netcdf") is None and not path.is_dir():
                raise ImportError(
                    f"{path} needs h5netcdf, if it is a NetCDF file: pip install "
                    "'lockquack[netcdf]'."
                ) from error
            raise FileError(
                "This is not a NetCDF file or Zarr store that can be read; it may be damaged, or "
                f"of another kind ({in_brief(error)})."
            ) from error


def require_store_place(
    path: str | Path, inputs: Iterable[str | Path] = (), kind: frozenset[str] | None = None
) -> Path:
    """Do as :func:`require_place`, and refuse to replace a file that lockquack did not write.

    Where the ``kind`` of what will be written is known, a file of another kind is refused too: a
    fit does not take the place of a model.
    """
    path = require_place(path, inputs)
    if not path.is_file() or not path.stat().st_size:
        return path
    found = _own_kind(path)
    if found is None:
        what = "is a file that lockquack did not write"
    elif kind is not None and found != kind:
        what = "is a file of lockquack's that holds something else, such as a model"
    else:
        return path
    raise OverwriteError(f"{path} {what}. Give another path, or remove the file yourself.")


def _own_kind(path: Path) -> frozenset[str] | None:
    """Return of which kind a file is that lockquack wrote; None: it did not."""
    with path.open("rb") as file:
        if file.read(len(_HDF5)) == _HDF5:
            _installed("h5netcdf", "netcdf", path)
    try:
        with xr.open_dataset(path, **_reader(path, flat=True)) as opened:
            return _kind(opened.attrs) if opened.attrs.get(AUTHOR) == OWN else None
    except Exception:  # a file of any kind, whatever a library makes of it
        return None


def _kind(attrs: Mapping[Any, Any]) -> frozenset[str]:
    """Return what tells files of different kinds apart: none of it is in a model's."""
    return frozenset(str(key) for key in attrs if str(key).startswith("lockquack_"))


def write(data: xr.Dataset | xr.DataTree, path: str | Path, *, zarr: bool = False) -> None:
    """Write to NetCDF, or to Zarr if the path ends in ``.zarr`` or it is asked for."""
    path = require_store_place(path, kind=_kind(data.attrs))
    engine = _engine(path, flat=isinstance(data, xr.Dataset), zarr=zarr)
    data = data.copy(deep=False)
    data.attrs[AUTHOR] = OWN
    with written_whole(path) as unfinished:
        if engine == "zarr":
            import numcodecs

            # Others than zstd do not notice what has changed, and read beyond what was cut off.
            checked = {"compressors": [numcodecs.Zstd(checksum=True)]}
            # The third format has no settled specification of strings yet.
            data.to_zarr(unfinished, mode="w-", zarr_format=2, encoding=_encoding(data, checked))
        elif isinstance(data, xr.Dataset) and engine == "scipy":
            # A copy: what is returned is a view of a buffer that cannot be closed beneath it.
            unfinished.write_bytes(bytes(data.to_netcdf(engine="scipy")))
        else:
            _write_hdf5(data, unfinished)


def _write_hdf5(data: xr.Dataset | xr.DataTree, path: Path) -> None:
    """Write in this process: workers would not survive a full disk either."""
    encoding, client = _encoding(data, {"fletcher32": True}), active_client()
    if client is None:
        with unfailing(path) as file:
            data.to_netcdf(file, engine="h5netcdf", encoding=encoding)
        return
    import dask

    with unfailing(path) as file, dask.config.set(scheduler="threads"):
        _computed_by(client, data).to_netcdf(file, engine="h5netcdf", encoding=encoding)


def _computed_by(client: Any, data: xr.Dataset | xr.DataTree) -> xr.Dataset | xr.DataTree:
    """Let a cluster compute the chunks that are written, when it is their turn."""
    if isinstance(data, xr.DataTree):
        nodes = {node.path: node.to_dataset(inherit=False) for node in data.subtree}
        return xr.DataTree.from_dict({at: _computed_by(client, node) for at, node in nodes.items()})
    import dask.array as da

    lazy = {name: each for name, each in data.data_vars.items() if each.chunks is not None}
    return data.assign(
        {
            name: each.copy(
                data=da.from_array(_Elsewhere(client, each.data), each.chunks, asarray=False)
            )
            for name, each in lazy.items()
        }
    )


@dataclass(frozen=True, eq=False)
class _Elsewhere:
    """An array of dask's, of which parts are computed on a cluster when they are asked for."""

    client: Any
    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __getitem__(self, key: Any) -> Any:
        return self.client.compute(self.array[key]).result()


def _encoding(data: xr.Dataset | xr.DataTree, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Let the same be done to all arrays of numbers, wherever they are."""
    if isinstance(data, xr.DataTree):
        return {node.path: _encoding(node.to_dataset(), numbers) for node in data.subtree}
    return {
        str(name): dict(numbers)
        for name, variable in data.variables.items()
        if variable.dtype.kind in "fiubmM" and variable.size and variable.ndim
    }


@contextmanager
def zarr_store(path: str | Path) -> Iterator[Path]:
    """Yield where to write a Zarr store that takes the place of another once it is whole."""
    _installed("zarr", "zarr", Path(path))
    with written_whole(require_store_place(path)) as unfinished:
        yield unfinished


def _engine(path: Path, *, flat: bool, zarr: bool = False) -> Engine:
    """Choose what reads and writes a path; scipy is always there, but knows no groups."""
    if zarr or path.suffix == ".zarr" or path.is_dir():
        return _installed("zarr", "zarr", path)
    if flat and find_spec("h5netcdf") is None:
        return "scipy"
    return _installed("h5netcdf", "netcdf", path)


def _installed(engine: Engine, extra: str, path: Path) -> Engine:
    if find_spec(engine) is None:
        raise ImportError(f"{path} needs {engine}: pip install 'lockquack[{extra}]'.")
    return engine
