// Weight types as the kernels of tile devices decode them.
#pragma once

#include "base/error.h"
#include "kernels/tiles/panel.h"
#include "tensor/dtype.h"

namespace redline {

/// unsupported: a type that no kernel decodes.
Result<tiles::PanelFormat> panel_format(DType dtype);

}  // namespace redline
