#include "models/blocks/conv_blocks.h"

#include "graph/ops/add.h"
#include "graph/ops/group_norm.h"
#include "graph/ops/linear.h"

namespace redline {

int64_t ConvBlocks::channels(const FeatureMap& x) const {
  return x.value.valid() ? g_.info(x.value).shape[1].constant() : 0;
}

FeatureMap ConvBlocks::conv(FeatureMap x, const std::string& name, int64_t out, int64_t kernel) {
  if (!x.value.valid()) return x;
  g_.set_scope(name);
  const Conv2dAttrs attrs = {.kernel = kernel, .pad_before = kernel / 2, .pad_after = kernel / 2};
  const Value weight = w_.take(name + ".weight", {out, channels(x), kernel, kernel});
  return conv2d(g_, x, batch, weight, w_.take(name + ".bias", {out}), x.height, x.width, attrs);
}

FeatureMap ConvBlocks::downsample(FeatureMap x, const std::string& name, int64_t pad_before, Dim height, Dim width) {
  if (!x.value.valid()) return x;
  g_.set_scope(name);
  const int64_t c = channels(x);
  return conv2d(g_, x, batch, w_.take(name + ".weight", {c, c, 3, 3}), w_.take(name + ".bias", {c}), std::move(height),
                std::move(width), {.stride = 2, .pad_before = pad_before});
}

FeatureMap ConvBlocks::upsample(FeatureMap x, const std::string& name, Dim height, Dim width) {
  if (!x.value.valid()) return x;
  g_.set_scope(name);
  const int64_t c = channels(x);
  return conv2d(g_, x, batch, w_.take(name + ".weight", {c, c, 3, 3}), w_.take(name + ".bias", {c}), std::move(height),
                std::move(width), {.upsample = true});
}

FeatureMap ConvBlocks::norm(FeatureMap x, const std::string& name, bool silu) {
  if (!x.value.valid()) return x;
  g_.set_scope(name);
  const int64_t c = channels(x);
  const Value weight = w_.take(name + ".weight", {c}), bias = w_.take(name + ".bias", {c});
  return {group_norm(g_, x, batch, weight, bias, {groups_, eps_, silu}), x.height, x.width};
}

FeatureMap ConvBlocks::resnet(FeatureMap x, const std::string& name, int64_t out, Value time, int64_t time_width) {
  if (!x.value.valid()) return x;
  const int64_t in = channels(x);
  FeatureMap shortcut = x;
  if (in != out) shortcut = conv(x, name + ".conv_shortcut", out, 1);
  Value item_bias;
  if (time_width > 0) {
    const std::string proj = name + ".time_emb_proj";
    g_.set_scope(proj);
    item_bias = linear(g_, time, w_.take(proj + ".weight", {out, time_width}), w_.take(proj + ".bias", {out}));
  }
  FeatureMap h = norm(x, name + ".norm1", true);
  g_.set_scope(name + ".conv1");
  h = conv2d(g_, h, batch, w_.take(name + ".conv1.weight", {out, in, 3, 3}), w_.take(name + ".conv1.bias", {out}),
             x.height, x.width, {}, item_bias);
  h = conv(norm(h, name + ".norm2", true), name + ".conv2", out);
  g_.set_scope(name);
  return {add(g_, shortcut.value, h.value), x.height, x.width};
}

Value ConvBlocks::project(Value x, const std::string& name, int64_t out, bool bias) {
  if (!x.valid()) return x;
  g_.set_scope(name);
  const int64_t in = g_.info(x).shape[1].constant();
  const Value weight = w_.take(name + ".weight", {out, in});
  return linear(g_, x, weight, bias ? w_.take(name + ".bias", {out}) : Value{});
}

}  // namespace redline
