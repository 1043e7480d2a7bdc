// Eigenvalues and eigenvectors of small matrices, for dynamic mode decomposition.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace redline {

/// Row-major square matrix.
template <class T>
struct SmallMatrix {
  int64_t n = 0;
  std::vector<T> values;

  explicit SmallMatrix(int64_t size) : n(size), values(static_cast<size_t>(size * size)) {}
  T& at(int64_t i, int64_t j) { return values[static_cast<size_t>(i * n + j)]; }
  const T& at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * n + j)]; }
};

/// A symmetric matrix = V diag(values) V^T, values decreasing, by cyclic Jacobi rotations. `vectors`: columns.
void symmetric_eigen(SmallMatrix<double> matrix, std::vector<double>& values, SmallMatrix<double>& vectors);

/// matrix * column = value * column for each column of `vectors` (unit length), by shifted QR steps on the upper
/// Hessenberg form's complex Schur form. False when it does not converge, or when the matrix is
/// defective.
bool general_eigen(const SmallMatrix<double>& matrix, std::vector<std::complex<double>>& values,
                   SmallMatrix<std::complex<double>>& vectors);

/// Solves matrix x = b by elimination with pivoting; false for a singular matrix.
bool solve_linear(SmallMatrix<std::complex<double>> matrix, std::vector<std::complex<double>> b,
                  std::vector<std::complex<double>>& x);

}  // namespace redline
