"""Programs that travel: traced functions as bytes, without pickled code; see `programs` for the layout."""

from sparsejax.export.errors import LayoutError
from sparsejax.export.programs import Exported, deserialize, export

__all__ = ["Exported", "LayoutError", "deserialize", "export"]
