// Computes eigenvalues and eigenvectors of small matrices, for dynamic mode decomposition.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace redline {

/// A row-major square matrix.
template <class T>
struct SmallMatrix {
  int64_t n = 0;
  std::vector<T> values;

  explicit SmallMatrix(int64_t size) : n(size), values(static_cast<size_t>(size * size)) {}
  T& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * n + j)]; }
  const T& at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * n + j)]; }
};

/// Decomposes a symmetric matrix into V diag(values) V^T with decreasing values, by cyclic Jacobi rotations. `vectors`:
/// the columns of V.
void symmetric_eigen(SmallMatrix<double> matrix, std::vector<double>& values, SmallMatrix<double>& vectors);

/// Computes eigenvalues and eigenvectors: matrix * column = value * column for each column of `vectors` (unit length).
/// Method: shifted QR steps from the upper Hessenberg form to the complex Schur form. Returns false if it does not
/// converge, or if the matrix is defective.
bool general_eigen(const SmallMatrix<double>& matrix, std::vector<std::complex<double>>& values,
                   SmallMatrix<std::complex<double>>& vectors);

/// Solves matrix x = b by elimination with pivoting. Returns false for a singular matrix.
bool solve_linear(SmallMatrix<std::complex<double>> matrix, std::vector<std::complex<double>> b,
                  std::vector<std::complex<double>>& x);

}  // namespace redline
