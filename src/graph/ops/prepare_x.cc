#include "graph/ops/prepare_x.h"

#include "graph/reference.h"

namespace redline {
namespace {

Status reference(ReferenceContext& c) {
  c.out() = c.in(0);
  return {};
}

}  // namespace

const OpDef kPrepareX = {"prepare_x", reference};

}  // namespace redline
