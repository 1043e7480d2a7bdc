#include "graph/reference.h"

namespace redline {

void add_adapters_reference(const ReferenceContext& c, const AdapterSite* site, const HostTensor& x, HostTensor& y,
                            int64_t first_feature) {
  if (site == nullptr) return;
  for_adapted_rows(c.adapters(), *site, c.sizes(), 0, x.rows(), [&](const AdaptedRows& rows) {
    for (const WeightedAdapter& each : rows.adapters) {
      const AdapterFactors* f = factors_at(each, *site);
      const double scale = f == nullptr ? 0 : static_cast<double>(f->scale) * static_cast<double>(each.weight);
      for (int64_t m = rows.begin; f != nullptr && m < rows.end; ++m) {
        for (int64_t n = 0; f->bias != nullptr && n < y.cols(); ++n)
          y.row(m)[n] += scale * static_cast<double>(f->bias[first_feature + n]);
        for (int64_t r = 0; r < f->rank; ++r) {
          double t = 0;
          for (int64_t k = 0; k < x.cols(); ++k)
            t += x.row(m)[k] * static_cast<double>(f->plain_down[r * x.cols() + k]);
          t *= scale;
          for (int64_t n = 0; n < y.cols(); ++n)
            y.row(m)[n] += t * static_cast<double>(f->plain_up[(first_feature + n) * f->rank + r]);
        }
      }
    }
  });
}

}  // namespace redline
