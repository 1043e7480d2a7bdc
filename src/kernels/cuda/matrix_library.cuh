// cuBLASLt, loaded at run time where it is installed. The declarations and numbers follow cublasLt.h, so that the build
// needs neither the header nor the library.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <string>
#include <tuple>

#include "kernels/cuda/plan_cache.h"
#include "kernels/tiles/tile_device.h"

namespace redline::tiles {

class MatrixLibrary {
 public:
  /// Opens the library. `folders` are searched in order, separated by colons; an empty one stands for the loader's own
  /// search; "none" disables the library. nullptr: not found.
  static std::unique_ptr<MatrixLibrary> open(const char* folders, cudaStream_t stream);
  ~MatrixLibrary();
  MatrixLibrary(const MatrixLibrary&) = delete;
  MatrixLibrary& operator=(const MatrixLibrary&) = delete;

  const char* name() const { return name_.c_str(); }
  bool can_multiply(int32_t rows, int32_t cols, int32_t k, ProductType type) { return plan(rows, cols, k, type).found; }
  /// Adds the product to the stream and returns the status of the library; 0: success.
  int multiply(const MatrixProduct& product);

 private:
  /// The layout of cublasLtMatmulHeuristicResult_t.
  struct Heuristic {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
  };
  struct Functions {
    int (*create)(void** handle) = nullptr;
    int (*destroy)(void* handle) = nullptr;
    size_t (*version)() = nullptr;
    int (*make_product)(void** product, int compute_type, int scale_type) = nullptr;
    int (*set_product)(void* product, int attribute, const void* value, size_t bytes) = nullptr;
    int (*free_product)(void* product) = nullptr;
    int (*make_layout)(void** layout, int type, uint64_t rows, uint64_t cols, int64_t stride) = nullptr;
    int (*free_layout)(void* layout) = nullptr;
    int (*make_preference)(void** preference) = nullptr;
    int (*set_preference)(void* preference, int attribute, const void* value, size_t bytes) = nullptr;
    int (*free_preference)(void* preference) = nullptr;
    int (*find_algorithms)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference,
                           int wanted, Heuristic* found, int* count) = nullptr;
    int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                    void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                    const void* algorithm, void* workspace, size_t workspace_bytes, cudaStream_t stream) = nullptr;
  };
  /// The plan for products of one size.
  struct Plan {
    Plan() = default;
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    ~Plan() {
      if (product != nullptr) functions->free_product(product);
      for (void* layout : {w, x, y})
        if (layout != nullptr) functions->free_layout(layout);
    }
    const Functions* functions = nullptr;
    bool found = false;
    void *product = nullptr, *w = nullptr, *x = nullptr, *y = nullptr;
    Heuristic algorithm = {};
  };
  MatrixLibrary() = default;
  bool load(void* library);
  Plan& plan(int32_t rows, int32_t cols, int32_t k, ProductType type);
  void make_plan(Plan& plan, int32_t rows, int32_t cols, int32_t k, ProductType type);

  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;
  Functions f_;
  cudaStream_t stream_ = nullptr;
  void *handle_ = nullptr, *workspace_ = nullptr;
  std::string name_;
  /// Limit of the plan cache. Prompts have any number of rows, and a model some tens of matrix shapes.
  static constexpr size_t kMaxPlans = 1024;
  PlanCache<std::tuple<int32_t, int32_t, int32_t, ProductType>, Plan> plans_{kMaxPlans};
};

}  // namespace redline::tiles
