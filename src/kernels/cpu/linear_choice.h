// Which linear kernel serves how many rows of x, and so in which form x is wanted.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

/// "f32", "q8", "tiles", "i8".
const char* x_form_name(XForm form);

/// The forms of one x by number of rows: form i from min_rows of i on, up to that of i + 1. min_rows of the first is 0.
struct XForms {
  static constexpr int kMost = 3;
  struct {
    int64_t min_rows = 0;
    XForm form = XForm::kF32;
  } at[kMost];
  int count = 1;

  /// Which of `at` serves so many rows.
  int index_for_rows(int64_t rows) const;
  XForm for_rows(int64_t rows) const { return at[index_for_rows(rows)].form; }
  bool only_f32() const { return count == 1 && at[0].form == XForm::kF32; }
  /// Columns at whose multiples tasks may cut a row, whichever form it comes to have.
  int64_t grain() const;
  /// Memory of the largest form at up to `rows` rows.
  int64_t bytes(int64_t rows, int64_t cols) const;
  bool operator==(const XForms& other) const;
};

/// The kernels that multiply by one type of weight, beside the forms that they read.
struct LinearKernels {
  XForms forms;
  void (*run[XForms::kMost])(const LinearArgs&) = {};

  void (*for_rows(int64_t rows) const)(const LinearArgs&) { return run[forms.index_for_rows(rows)]; }
};

/// `exact_f32`: float32 products at any number of rows. No kernel at all (run[0] null) for a type that cannot be
/// multiplied by.
LinearKernels choose_linear(const CpuKernels& table, DType weight, bool exact_f32);

}  // namespace redline
