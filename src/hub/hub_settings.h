// Reads the address of the Hub and the folder of its files from the environment variables of huggingface_hub.
#pragma once

#include <string>

#include "base/error.h"

namespace redline {

struct HubSettings {
  std::string endpoint;      ///< HF_ENDPOINT, else https://huggingface.co; without a slash at its end
  std::string token;         ///< HF_TOKEN, else the file of HF_TOKEN_PATH, which `hf auth login` writes; "": none
  std::string cache_folder;  ///< HF_HUB_CACHE, else hub in HF_HOME, else ~/.cache/huggingface/hub
  bool is_offline = false;   ///< HF_HUB_OFFLINE
  int timeout_s = 10;        ///< HF_HUB_DOWNLOAD_TIMEOUT: seconds to connect, and without data on a connection
};

/// Reads the settings. invalid_argument: an endpoint that is not an address of http or https, a token with control
/// characters, or a timeout that is not a number. not_found: neither a variable nor a home folder determines the cache
/// folder.
Result<HubSettings> read_hub_settings();

}  // namespace redline
