// The elementwise part of a long short-term memory. Gates are exact to a few units of rounding
// (activation_functions.h), and c is a sum of two products: each off by at most (12 + 4 |gates|) 2^-24 of its size.
#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/recurrence.h"

namespace redline::REDLINE_ISA_NS {
namespace {

REDLINE_INLINE VecF32 sigmoid_gate(VecF32 x) { return set1(1.0f) / (set1(1.0f) + exp(zero_f32() - x)); }

void lstm_cell(const LstmCellArgs& a) {
  const float *input = a.gates, *forget = input + a.hidden, *cell = forget + a.hidden, *output = cell + a.hidden;
  for_lanes(a.hidden, [&](int64_t i, auto lanes) {
    const VecF32 fresh = sigmoid_gate(load(input + i, lanes)) * tanh(load(cell + i, lanes));
    const VecF32 c = fma(sigmoid_gate(load(forget + i, lanes)), load(a.c + i, lanes), fresh);
    const VecF32 h = sigmoid_gate(load(output + i, lanes)) * tanh(c);
    store(a.c + i, c, lanes);
    store(a.h + i, h, lanes);
    store(a.y + i, h, lanes);
  });
}

}  // namespace

void fill_lstm_cell(CpuKernels& table) { table.lstm_cell = lstm_cell; }

}  // namespace redline::REDLINE_ISA_NS
