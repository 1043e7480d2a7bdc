// Activation functions as ops: plain and gated.
#pragma once

#include "graph/graph.h"
#include "tensor/activation.h"

namespace redline {

std::string_view activation_name(Activation kind);  ///< "gelu_tanh"
/// Accepts the names that configs use: silu, swish, gelu, gelu_new, gelu_pytorch_tanh, gelu-approximate, quick_gelu,
/// relu, tanh. unsupported: any other name; the message lists these.
Result<Activation> activation_from_name(std::string_view name);

double activation_of(Activation kind, double x);  ///< evaluates the formula, for references

struct ActivationAttrs {
  Activation kind;
  bool halves = false;  ///< one input holds both [up, gate]
};

/// y = f(x), elementwise (tensor/activation.h has the formulas).
///
/// x  [rows, cols]  f32
/// returns like x; can be stored in the layouts that linear ops read
Value activation(GraphBuilder& g, Value x, Activation kind);

/// y[r, c] = f(gate[r, c]) * up[r, c] (Shazeer 2020, arXiv:2002.05202). `gate` and `up` have y's shape. If `up` is
/// invalid, `gate` is [rows, 2 * cols] and holds both: up first, then the gate (GEGLU of diffusers).
///
/// returns [rows, cols]; can be stored in the layouts that linear ops read
Value gated_activation(GraphBuilder& g, Value gate, Value up, Activation kind);

extern const OpDef kActivation;
extern const OpDef kGatedActivation;

}  // namespace redline
