// The registry of solvers. Each file in solvers/ defines one row, which the build finds: unipc.cc has kUnipcSolver.
#pragma once

#include "diffusion/solver.h"
#include "diffusion/solver_fields.h"

namespace redline {

/// Kinds of models that a solver can run.
enum class SolverModels : uint8_t {
  kDiffusion,  ///< trained on a schedule of betas
  kFlow,       ///< trained by flow matching
  kBoth,       ///< kDiffusion, and kFlow with use_flow_sigmas
};

struct SolverRow {
  std::string_view name;        ///< short name: "euler"
  std::string_view class_name;  ///< diffusers' class: "EulerDiscreteScheduler"
  /// Names of the sampler in A1111's web UI ("Euler a") and in ComfyUI ("euler_ancestral").
  std::string_view web_ui_name, comfyui_name;
  SolverModels models;
  /// Makes the solver from its fields; errors are kept in `fields`.
  std::unique_ptr<Solver> (*make)(SolverFields& fields);
};

template <class T>
std::unique_ptr<Solver> make_solver(SolverFields& fields) {
  return std::make_unique<T>(fields);
}

}  // namespace redline
