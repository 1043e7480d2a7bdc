// The benchmark cases of FractalTensor (Liu et al. 2024, doi:10.1145/3694715.3695961): a matrix product, two products
// in a row, a stacked and a dilated LSTM, with random weights.
#pragma once

#include <vector>

#include "lab/random/random_networks.h"

namespace redline::lab {

struct TensorProgram {
  std::string_view name, about;
  int64_t width;                  ///< default of --side: columns between two products, or of a state
  int64_t columns;                ///< columns of the input; 0: `width`
  int64_t sequences, tokens;      ///< tokens: tokens of a sequence, or rows
  std::vector<int64_t> dilation;  ///< dilation of each layer; empty: the program is made of products
  int64_t products = 0;
};
const std::vector<TensorProgram>& tensor_programs();
/// Returns the program with this name; nullptr: there is none.
const TensorProgram* find_tensor_program(std::string_view name);

/// Makes the network of a program. invalid_argument: a width that is not a multiple of 16.
Result<RandomNetwork> make_tensor_program(const TensorProgram& program, DType weights, int64_t width);

}  // namespace redline::lab
