// Maps weight types to the formats that kernels of tile devices decode.
#pragma once

#include "base/error.h"
#include "kernels/tiles/panel.h"
#include "tensor/dtype.h"

namespace redline {

/// Returns the format of a type. unsupported: no kernel decodes the type.
Result<tiles::PanelFormat> panel_format(DType dtype);

}  // namespace redline
