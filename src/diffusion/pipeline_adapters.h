// The adapters of a pipeline: the same set in the denoiser and all text encoders.
#pragma once

#include "diffusion/adapters.h"

namespace redline {

class PipelineAdapters {
 public:
  /// `component` of model_index.json, "" for the denoiser; `also`: a second name of it in files. `bank` outlives this.
  void add(std::string component, NetworkAdapters& bank, std::string also = "") {
    banks_.push_back({std::move(component), std::move(also), &bank});
  }
  /// Loads each network's share of the file as `name`, into all networks or none.
  /// As AdapterBank::load; invalid_argument also: a text encoder that the pipeline does not have.
  Status load(const std::string& name, const AdapterFile& file, bool plain);
  /// As NetworkAdapters::set, for all networks or none.
  Status set(NamedWeights adapters);

 private:
  struct Bank {
    std::string component, also;
    NetworkAdapters* bank;
  };
  std::vector<Bank> banks_;
};

}  // namespace redline
