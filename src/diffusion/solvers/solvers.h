// The solvers that there are: one page beside this header and one row in solver.cc each.
#pragma once

#include "diffusion/solver.h"
#include "diffusion/solver_fields.h"

namespace redline {

// Each reads its fields; what is wrong with them stays in `fields`.
std::unique_ptr<Solver> make_flow_euler(SolverFields& fields);
std::unique_ptr<Solver> make_euler(SolverFields& fields);
std::unique_ptr<Solver> make_euler_ancestral(SolverFields& fields);
std::unique_ptr<Solver> make_ddim(SolverFields& fields);
std::unique_ptr<Solver> make_dpm_multistep(SolverFields& fields);
std::unique_ptr<Solver> make_unipc(SolverFields& fields);
std::unique_ptr<Solver> make_lcm(SolverFields& fields);
std::unique_ptr<Solver> make_pndm(SolverFields& fields);

}  // namespace redline
