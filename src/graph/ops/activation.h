#pragma once

#include "graph/graph.h"
#include "tensor/activation.h"

namespace redline {

std::string_view activation_name(Activation kind);  ///< "gelu_tanh"
/// By the names that configs use: silu, swish, gelu, gelu_new, gelu_pytorch_tanh, gelu-approximate, quick_gelu, relu.
/// unsupported otherwise; the message lists the good ones.
Result<Activation> activation_from_name(std::string_view name);

double activation_of(Activation kind, double x);  ///< the formula, for references

struct ActivationAttrs {
  Activation kind;
  bool halves = false;  ///< of one input: [up, gate]
};

/// y = f(x), element by element (tensor/activation.h has the formulas).
///
/// x  [rows, cols]  f32
/// returns like x; can be stored in the forms that products read
Value activation(GraphBuilder& g, Value x, Activation kind);

/// y[r, c] = f(gate[r, c]) * up[r, c] (Shazeer 2020, arXiv:2002.05202). `gate` and `up` are values of y's shape, or
/// halves of one: [rows, 2 * cols] with `up` invalid, whose first half is up and second half the gate (GEGLU of
/// diffusers).
///
/// returns [rows, cols]; can be stored in the forms that products read
Value gated_activation(GraphBuilder& g, Value gate, Value up, Activation kind);

extern const OpDef kActivation;
extern const OpDef kGatedActivation;

}  // namespace redline
