// The adapters of a pipeline: the denoiser and all text encoders have the same set.
#pragma once

#include "diffusion/adapters.h"

namespace redline {

class PipelineAdapters {
 public:
  /// Adds the adapters of a network. `component`: its name in model_index.json, "" for the denoiser; `also`: a second
  /// name of it in files. `bank` must outlive this object.
  void add(std::string component, NetworkAdapters& bank, std::string also = "") {
    banks_.push_back({std::move(component), std::move(also), &bank});
  }
  /// Loads each network's share of the file as `name`, into all networks or none.
  /// Errors: those of AdapterBank::load(); invalid_argument: a text encoder that the pipeline does not have.
  Status load(const std::string& name, const AdapterFile& file, bool plain);
  /// NetworkAdapters::set() for all networks or, on error, for none.
  Status set(NamedWeights adapters);

 private:
  struct Bank {
    std::string component, also;
    NetworkAdapters* bank;
  };
  std::vector<Bank> banks_;
};

}  // namespace redline
