#include "graph/ops/qkv.h"

#include "graph/ops/kv_append.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/reference.h"

namespace redline {
namespace {

Status qkv_reference(ReferenceContext& c) {
  const auto& a = c.attrs<QkvAttrs>();
  const QkvInputs in(a);
  const HostTensor& x = c.in(0);
  HostTensor parts[3];
  for (size_t i = 0; i < 3; ++i) {
    const HostTensor& weight = c.in(1 + i);
    HostTensor& y = parts[i] = {{x.rows(), weight.rows()}, {}};
    y.data.resize(static_cast<size_t>(x.rows() * weight.rows()));
    linear_reference(x, weight, in.bias ? &c.in(in.bias + i) : nullptr, y);
    add_adapters_reference(c, a.adapters[i].get(), x, y);
    const size_t norm = i == 0 ? in.q_norm : i == 1 ? in.k_norm : 0;
    if (norm) rms_norm_reference(y, c.in(norm), i == 0 ? a.q_norm_eps : a.k_norm_eps, y);
    if (i < 2) {
      const HostTensor plain = y;
      rope_reference(plain, c.in(in.table), a.head_dim, y);
    }
  }
  c.out() = parts[0];
  append_reference(c, in.cache, parts[1], parts[2]);
  return {};
}

std::string describe_qkv(const std::any& any) {
  const auto& a = std::any_cast<const QkvAttrs&>(any);
  return fmt::format("{} heads and {} of keys and values, {} each{}{}{}", a.num_heads, a.num_kv_heads, a.head_dim,
                     a.has_bias ? ", +bias" : "", a.has_q_norm || a.has_k_norm ? ", +norm" : "",
                     a.adapters[0] || a.adapters[1] || a.adapters[2] ? ", +adapters" : "");
}

}  // namespace

const OpDef kQkv = {
    .name = "qkv", .reference = qkv_reference, .describe = describe_qkv, .num_matrices = 3, .writes_state = true};

}  // namespace redline
