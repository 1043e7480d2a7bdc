#include "graph/ops/prepare_x.h"

#include "graph/reference.h"

namespace redline {
namespace {

Status prepare_x_reference(ReferenceContext& c) {
  c.out() = c.in(0);
  return {};
}

}  // namespace

const OpDef kPrepareX = {"prepare_x", prepare_x_reference};

}  // namespace redline
