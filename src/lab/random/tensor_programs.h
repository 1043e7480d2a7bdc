// The cases by which FractalTensor (Liu et al. 2024, doi:10.1145/3694715.3695961) is measured: a matrix product, two
// products in a row, a stacked and a dilated LSTM, with random weights.
#pragma once

#include <vector>

#include "lab/random/random_networks.h"

namespace redline::lab {

struct TensorProgram {
  std::string_view name, about;
  int64_t width;                  ///< default of --side: the columns between two products, or of a state
  int64_t columns;                ///< of the input; 0: as wide as the rest
  int64_t sequences, tokens;      ///< tokens: of a sequence, or rows
  std::vector<int64_t> dilation;  ///< by layer; empty: products
  int64_t products = 0;
};
const std::vector<TensorProgram>& tensor_programs();
/// nullptr: none has this name.
const TensorProgram* find_tensor_program(std::string_view name);

/// invalid_argument: a width that is not a multiple of 16.
Result<RandomNetwork> make_tensor_program(const TensorProgram& program, DType weights, int64_t width);

}  // namespace redline::lab
