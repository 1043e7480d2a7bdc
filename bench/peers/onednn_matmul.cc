// oneDNN matmul as a module that `redline bench --kernel onednn` loads (src/lab/kernels/onednn_matmul.h).
#include <omp.h>

#include <cstdio>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>

#include "lab/kernels/onednn_matmul.h"

namespace {

using dnnl::memory;

struct Product {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul matmul;
  memory::desc plain;  ///< W as given: [n, k] row-major
  memory x, weight, y;
};

memory::data_type type_of(redline::DType type) {
  return type == redline::DType::kF32    ? memory::data_type::f32
         : type == redline::DType::kBF16 ? memory::data_type::bf16
                                         : memory::data_type::s8;
}

// Without VNNI, oneDNN adds pairs of int8 products in 16 bits, which saturate: the sums are wrong, not merely slow.
bool has_exact_int8_sums() {
  const auto bits = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto vnni =
      (static_cast<unsigned>(dnnl::cpu_isa::avx512_core_vnni) & ~static_cast<unsigned>(dnnl::cpu_isa::avx512_core)) |
      (static_cast<unsigned>(dnnl::cpu_isa::avx2_vnni) & ~static_cast<unsigned>(dnnl::cpu_isa::avx2));
  return (bits & vnni) != 0;
}

void* make(const redline::lab::OneDnnWorkload& workload, char* reason, int64_t room) try {
  omp_set_num_threads(1);
  const auto type = type_of(workload.type);
  if (type == memory::data_type::s8 && !has_exact_int8_sums())
    throw std::runtime_error("its int8 sums saturate on a CPU without VNNI");
  auto product = std::make_unique<Product>();
  dnnl::primitive_attr attributes;
  if (workload.type == redline::DType::kI8)
    attributes.set_output_scales(1 << 1, {workload.scales, workload.scales + workload.n});
  const memory::desc x({workload.m, workload.k}, type, memory::format_tag::ab);
  const memory::desc weight({workload.k, workload.n}, type, memory::format_tag::any);
  const memory::desc y({workload.m, workload.n}, memory::data_type::f32, memory::dims{workload.y_stride, 1});
  product->description = {{x, weight, y}, attributes, product->engine};
  product->matmul = dnnl::matmul(product->description);
  product->plain = {{workload.k, workload.n}, type, memory::format_tag::ba};
  product->x = memory(product->description.src_desc(), product->engine, nullptr);
  product->weight = memory(product->description.weights_desc(), product->engine, nullptr);
  product->y = memory(product->description.dst_desc(), product->engine, nullptr);
  return product.release();
} catch (const std::exception& e) {
  std::snprintf(reason, static_cast<size_t>(room), "%s", e.what());
  return nullptr;
}

void destroy(void* product) { delete static_cast<Product*>(product); }

int64_t weight_bytes(const void* product) {
  return static_cast<int64_t>(static_cast<const Product*>(product)->description.weights_desc().get_size());
}

void pack(void* product, const void* weight, void* packed) {
  auto& p = *static_cast<Product*>(product);
  memory plain(p.plain, p.engine, const_cast<void*>(weight));
  p.weight.set_data_handle(packed);
  dnnl::reorder(plain, p.weight).execute(p.stream, plain, p.weight);
  p.stream.wait();
}

bool run(void* product, const void* x, const void* packed, float* y) try {
  omp_set_num_threads(1);  // for the calling thread: each of ours makes its own share
  auto& p = *static_cast<Product*>(product);
  p.x.set_data_handle(const_cast<void*>(x));
  p.weight.set_data_handle(const_cast<void*>(packed));
  p.y.set_data_handle(y);
  p.matmul.execute(p.stream, {{DNNL_ARG_SRC, p.x}, {DNNL_ARG_WEIGHTS, p.weight}, {DNNL_ARG_DST, p.y}});
  p.stream.wait();
  return true;
} catch (const std::exception&) {
  return false;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const redline::lab::OneDnnModule* redline_onednn() {
  static const std::string version = [] {
    const dnnl_version_t* v = dnnl_version();
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
  }();
  static const redline::lab::OneDnnModule module = {version.c_str(), make, destroy, weight_bytes, pack, run};
  return &module;
}
