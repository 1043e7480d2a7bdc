#include "kernels/cuda/matrix_library.cuh"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace redline::tiles {
namespace {

// cudaDataType_t, cublasComputeType_t, cublasOperation_t and attributes.
constexpr int kFloat32 = 0, kInt8 = 3, kInt32 = 10, kBfloat16 = 14, kE4m3 = 28;
constexpr int kComputeFloat32 = 68, kComputeInt32 = 72;
constexpr int kTransposed = 1;
constexpr int kTransposeA = 3, kFastSums = 25, kMaxWorkspaceBytes = 1;
constexpr const char* kFile = "libcublasLt.so.13";

template <class F>
bool find(void* library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(::dlsym(library, name));
  return function != nullptr;
}

void* load_library(const std::string& folders) {
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string folder = folders.substr(begin, end - begin);
    const std::string file = folder.empty() ? kFile : folder + "/" + kFile;
    if (void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    begin = end + 1;
  }
  return nullptr;
}

}  // namespace

bool MatrixLibrary::load(void* library) {
  return find(library, "cublasLtCreate", f_.create) && find(library, "cublasLtDestroy", f_.destroy) &&
         find(library, "cublasLtGetVersion", f_.version) &&
         find(library, "cublasLtMatmulDescCreate", f_.make_product) &&
         find(library, "cublasLtMatmulDescSetAttribute", f_.set_product) &&
         find(library, "cublasLtMatmulDescDestroy", f_.free_product) &&
         find(library, "cublasLtMatrixLayoutCreate", f_.make_layout) &&
         find(library, "cublasLtMatrixLayoutDestroy", f_.free_layout) &&
         find(library, "cublasLtMatmulPreferenceCreate", f_.make_preference) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", f_.set_preference) &&
         find(library, "cublasLtMatmulPreferenceDestroy", f_.free_preference) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", f_.find_algorithms) &&
         find(library, "cublasLtMatmul", f_.multiply);
}

std::unique_ptr<MatrixLibrary> MatrixLibrary::open(const char* folders, cudaStream_t stream) {
  if (std::strcmp(folders, "none") == 0) return nullptr;
  void* library = load_library(folders);  // never closed: it starts threads
  std::unique_ptr<MatrixLibrary> opened(new MatrixLibrary());
  if (library == nullptr || !opened->load(library) || opened->f_.create(&opened->handle_) != 0) return nullptr;
  opened->stream_ = stream;
  if (cudaMalloc(&opened->workspace_, kWorkspaceBytes) != cudaSuccess) {
    cudaGetLastError();  // no later call shall report it
    return nullptr;
  }
  const size_t version = opened->f_.version();
  opened->name_ = "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                  std::to_string(version % 100);
  return opened;
}

MatrixLibrary::~MatrixLibrary() {
  plans_.clear();
  if (workspace_ != nullptr) cudaFree(workspace_);
  if (handle_ != nullptr) f_.destroy(handle_);
}

MatrixLibrary::Plan& MatrixLibrary::plan(int32_t rows, int32_t cols, int32_t k, ProductType type) {
  return plans_.get({rows, cols, k, type}, [&](Plan& made) { make_plan(made, rows, cols, k, type); });
}

// Makes the plan of y = x w^T. The library's matrices are column-major, so it reads each row-major matrix as its
// transpose. It computes y^T [cols, rows] = w x^T: its first factor is transposed (w), its second one is not (x^T).
void MatrixLibrary::make_plan(Plan& p, int32_t rows, int32_t cols, int32_t k, ProductType type) {
  p.functions = &f_;
  const bool is_integer = type == ProductType::kI8;
  const int factor = is_integer ? kInt8 : type == ProductType::kE4M3 ? kE4m3 : kBfloat16;
  const int sum = is_integer ? kInt32 : kFloat32;
  const int8_t fast_sums = type == ProductType::kE4M3 ? 1 : 0;
  const auto m = static_cast<uint64_t>(rows), n = static_cast<uint64_t>(cols), depth = static_cast<uint64_t>(k);
  void* preference = nullptr;
  int count = 0;
  const bool ok = f_.make_product(&p.product, is_integer ? kComputeInt32 : kComputeFloat32, sum) == 0 &&
                  f_.set_product(p.product, kTransposeA, &kTransposed, sizeof(kTransposed)) == 0 &&
                  (!fast_sums || f_.set_product(p.product, kFastSums, &fast_sums, sizeof(fast_sums)) == 0) &&
                  f_.make_layout(&p.w, factor, depth, n, k) == 0 && f_.make_layout(&p.x, factor, depth, m, k) == 0 &&
                  f_.make_layout(&p.y, sum, n, m, cols) == 0 && f_.make_preference(&preference) == 0 &&
                  f_.set_preference(preference, kMaxWorkspaceBytes, &kWorkspaceBytes, sizeof(kWorkspaceBytes)) == 0 &&
                  f_.find_algorithms(handle_, p.product, p.w, p.x, p.y, p.y, preference, 1, &p.algorithm, &count) == 0;
  if (preference != nullptr) f_.free_preference(preference);
  p.found = ok && count == 1 && p.algorithm.status == 0;
}

int MatrixLibrary::multiply(const MatrixProduct& product) {
  const Plan& p = plan(product.rows, product.cols, product.k, product.type);
  constexpr int kNotSupported = 15;
  if (!p.found) return kNotSupported;
  const float one = 1, zero = 0;
  const int32_t whole_one = 1, whole_zero = 0;
  const bool is_integer = product.type == ProductType::kI8;
  const void* const alpha = is_integer ? static_cast<const void*>(&whole_one) : &one;
  const void* const beta = is_integer ? static_cast<const void*>(&whole_zero) : &zero;
  return f_.multiply(handle_, p.product, alpha, product.w, p.w, product.x, p.x, beta, product.y, p.y, product.y, p.y,
                     p.algorithm.algorithm, workspace_, kWorkspaceBytes, stream_);
}

}  // namespace redline::tiles
