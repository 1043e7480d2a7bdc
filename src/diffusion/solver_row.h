// The registry of solvers. Each file in solvers/ defines one row; solver.cc lists them.
#pragma once

#include "diffusion/solver.h"
#include "diffusion/solver_fields.h"

namespace redline {

/// Kinds of models that a solver can run.
enum class SolverModels : uint8_t {
  kDiffusion,  ///< trained on a schedule of betas
  kFlow,       ///< trained by flow matching
  kBoth,       ///< the former, and the latter with use_flow_sigmas
};

struct SolverRow {
  std::string_view name;        ///< short name: "euler"
  std::string_view class_name;  ///< diffusers' class: "EulerDiscreteScheduler"
  SolverModels models;
  /// Reads its fields; errors are kept in `fields`.
  std::unique_ptr<Solver> (*make)(SolverFields& fields);
};

template <class T>
std::unique_ptr<Solver> make_solver(SolverFields& fields) {
  return std::make_unique<T>(fields);
}

}  // namespace redline
