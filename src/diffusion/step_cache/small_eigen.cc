#include "diffusion/step_cache/small_eigen.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace redline {
namespace {

using Complex = std::complex<double>;
using ComplexMatrix = SmallMatrix<Complex>;

double norm_of(const SmallMatrix<double>& m) {
  double sum = 0;
  for (const double v : m.values) sum += v * v;
  return std::sqrt(sum);
}

/// Does one QR step of the leading `size` rows with a shift: t <- R Q + shift, q <- q Q.
void qr_step(ComplexMatrix& t, ComplexMatrix& q, int64_t size, Complex shift) {
  const int64_t n = t.n;
  for (int64_t i = 0; i < size; ++i) t.at(i, i) -= shift;
  struct Rotation {
    double c = 1;
    Complex s = 0;
  };
  std::vector<Rotation> rotations;
  // The matrix is upper Hessenberg: one rotation per column suffices.
  for (int64_t k = 0; k + 1 < size; ++k) {
    const Complex a = t.at(k, k), b = t.at(k + 1, k);
    const double r = std::hypot(std::abs(a), std::abs(b));
    Rotation g;
    if (r > 0) {
      const Complex phase = std::abs(a) > 0 ? a / std::abs(a) : Complex(1);
      g.c = std::abs(a) / r;
      g.s = phase * std::conj(b) / r;
    }
    for (int64_t j = 0; j < n; ++j) {
      const Complex x = t.at(k, j), y = t.at(k + 1, j);
      t.at(k, j) = g.c * x + g.s * y;
      t.at(k + 1, j) = -std::conj(g.s) * x + g.c * y;
    }
    rotations.push_back(g);
  }
  for (int64_t k = 0; k + 1 < size; ++k) {
    const Rotation& g = rotations[static_cast<size_t>(k)];
    for (ComplexMatrix* m : {&t, &q})
      for (int64_t i = 0; i < n; ++i) {
        const Complex x = m->at(i, k), y = m->at(i, k + 1);
        m->at(i, k) = x * g.c + y * std::conj(g.s);
        m->at(i, k + 1) = -x * g.s + y * g.c;
      }
  }
  for (int64_t i = 0; i < size; ++i) t.at(i, i) += shift;
}

/// t <- Q^H t Q upper Hessenberg by rotations, q = Q.
void to_hessenberg(ComplexMatrix& t, ComplexMatrix& q) {
  const int64_t n = t.n;
  for (int64_t k = 0; k + 2 < n; ++k)
    for (int64_t i = k + 2; i < n; ++i) {
      const Complex a = t.at(k + 1, k), b = t.at(i, k);
      const double r = std::hypot(std::abs(a), std::abs(b));
      if (std::abs(b) == 0) continue;
      const Complex phase = std::abs(a) > 0 ? a / std::abs(a) : Complex(1);
      const double c = std::abs(a) / r;
      const Complex s = phase * std::conj(b) / r;
      for (int64_t j = 0; j < n; ++j) {
        const Complex x = t.at(k + 1, j), y = t.at(i, j);
        t.at(k + 1, j) = c * x + s * y;
        t.at(i, j) = -std::conj(s) * x + c * y;
      }
      for (ComplexMatrix* m : {&t, &q})
        for (int64_t j = 0; j < n; ++j) {
          const Complex x = m->at(j, k + 1), y = m->at(j, i);
          m->at(j, k + 1) = x * c + y * std::conj(s);
          m->at(j, i) = -x * s + y * c;
        }
    }
}

/// Returns the eigenvalue of the trailing 2 x 2 block of the leading `size` rows that is nearer to its last element.
Complex wilkinson_shift(const ComplexMatrix& t, int64_t size) {
  const Complex a = t.at(size - 2, size - 2), b = t.at(size - 2, size - 1), c = t.at(size - 1, size - 2),
                d = t.at(size - 1, size - 1);
  const Complex half = (a - d) / 2.0, root = std::sqrt(half * half + b * c), mean = (a + d) / 2.0;
  return std::abs(mean + root - d) < std::abs(mean - root - d) ? mean + root : mean - root;
}

}  // namespace

void symmetric_eigen(SmallMatrix<double> m, std::vector<double>& values, SmallMatrix<double>& vectors) {
  const int64_t n = m.n;
  SmallMatrix<double> v(n);
  for (int64_t i = 0; i < n; ++i) v.at(i, i) = 1;
  const double scale = norm_of(m);
  for (int sweep = 0; sweep < 30; ++sweep) {
    double off = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i + 1; j < n; ++j) off += m.at(i, j) * m.at(i, j);
    if (!(std::sqrt(off) > 1e-15 * scale)) break;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (m.at(p, q) == 0) continue;
        const double theta = (m.at(q, q) - m.at(p, p)) / (2 * m.at(p, q));
        const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::hypot(1.0, theta));
        const double c = 1 / std::hypot(1.0, t), s = t * c;
        for (int64_t k = 0; k < n; ++k) {
          const double x = m.at(k, p), y = m.at(k, q);
          m.at(k, p) = c * x - s * y;
          m.at(k, q) = s * x + c * y;
        }
        for (int64_t k = 0; k < n; ++k) {
          const double x = m.at(p, k), y = m.at(q, k);
          m.at(p, k) = c * x - s * y;
          m.at(q, k) = s * x + c * y;
          const double vx = v.at(k, p), vy = v.at(k, q);
          v.at(k, p) = c * vx - s * vy;
          v.at(k, q) = s * vx + c * vy;
        }
      }
  }
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return m.at(a, a) > m.at(b, b); });
  values.clear();
  vectors = SmallMatrix<double>(n);
  for (int64_t j = 0; j < n; ++j) {
    values.push_back(m.at(order[j], order[j]));
    for (int64_t i = 0; i < n; ++i) vectors.at(i, j) = v.at(i, order[j]);
  }
}

bool general_eigen(const SmallMatrix<double>& matrix, std::vector<Complex>& values, ComplexMatrix& vectors) {
  const int64_t n = matrix.n;
  ComplexMatrix t(n), q(n);
  for (int64_t i = 0; i < n * n; ++i) t.values[i] = matrix.values[i];
  for (int64_t i = 0; i < n; ++i) q.at(i, i) = 1;
  const double scale = std::max(norm_of(matrix), 1e-300), tiny = 1e-15 * scale;
  to_hessenberg(t, q);
  int64_t size = n;
  for (int steps = 0; size > 1; ++steps) {
    if (steps > 60 * n) return false;
    if (std::abs(t.at(size - 1, size - 2)) <= tiny) {
      t.at(size - 1, size - 2) = 0;
      --size;
      steps = 0;
      continue;
    }
    // An exceptional shift at every tenth step breaks cycles.
    const Complex shift = steps % 10 == 9 ? Complex(std::abs(t.at(size - 1, size - 2))) : wilkinson_shift(t, size);
    qr_step(t, q, size, shift);
  }
  values.clear();
  for (int64_t i = 0; i < n; ++i) values.push_back(t.at(i, i));
  // Eigenvectors of the triangular matrix by back substitution, then rotated by q.
  vectors = ComplexMatrix(n);
  for (int64_t k = 0; k < n; ++k) {
    std::vector<Complex> x(static_cast<size_t>(n));
    x[k] = 1;
    for (int64_t i = k - 1; i >= 0; --i) {
      Complex sum = 0;
      for (int64_t j = i + 1; j <= k; ++j) sum += t.at(i, j) * x[j];
      const Complex gap = t.at(k, k) - t.at(i, i);
      if (std::abs(gap) <= 1e-13 * scale && std::abs(sum) > 1e-13 * scale) return false;
      x[i] = std::abs(gap) <= 1e-13 * scale ? Complex(0) : sum / gap;
    }
    double length = 0;
    for (const Complex& c : x) length += std::norm(c);
    length = std::sqrt(length);
    for (int64_t i = 0; i < n; ++i) {
      Complex sum = 0;
      for (int64_t j = 0; j <= k; ++j) sum += q.at(i, j) * x[j];
      vectors.at(i, k) = sum / length;
    }
  }
  return true;
}

bool solve_linear(ComplexMatrix m, std::vector<Complex> b, std::vector<Complex>& x) {
  const int64_t n = m.n;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i)
      if (std::abs(m.at(i, k)) > std::abs(m.at(pivot, k))) pivot = i;
    if (!(std::abs(m.at(pivot, k)) > 1e-14)) return false;
    for (int64_t j = 0; j < n; ++j) std::swap(m.at(k, j), m.at(pivot, j));
    std::swap(b[k], b[pivot]);
    for (int64_t i = k + 1; i < n; ++i) {
      const Complex factor = m.at(i, k) / m.at(k, k);
      for (int64_t j = k; j < n; ++j) m.at(i, j) -= factor * m.at(k, j);
      b[i] -= factor * b[k];
    }
  }
  x.assign(static_cast<size_t>(n), 0);
  for (int64_t i = n - 1; i >= 0; --i) {
    Complex sum = b[i];
    for (int64_t j = i + 1; j < n; ++j) sum -= m.at(i, j) * x[j];
    x[i] = sum / m.at(i, i);
  }
  return true;
}

}  // namespace redline
