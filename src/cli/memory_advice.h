// What fits into the memory of this machine, for models that do not.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "redline/image.h"

namespace redline::cli {

/// Bytes that this process can still take: the least that the machine, the control group (version 2) and `ulimit -v`
/// leave.
int64_t available_memory();

/// Bytes of the weights in the files of a model; 0 if they cannot be read, or for names that are not files.
int64_t weight_bytes_of(const std::string& path);

/// Before a model is opened: a warning if its weights take more than `available`; else "". Memory is reserved without
/// being checked by most systems, so that the program would be killed without a word.
std::string memory_warning(const std::string& path, int64_t weight_bytes, int64_t parameters, int64_t available);
/// The same for the files of a model; "" if they cannot be read, or for names that are not files.
std::string memory_warning(const std::string& path);

/// Before images are made: a warning if the arenas, of `arena` bytes at the largest size and batch, take more than
/// `available` for `images` of `width` x `height`; else "".
std::string image_memory_warning(int64_t arena, const ImageOptions& options, int64_t images, int64_t width,
                                 int64_t height, int64_t available);

/// Adds what is available and a context that fits to an out_of_memory; another status is returned as it is.
Status advise_text_memory(Status status, const std::string& path, int64_t context);
/// The same for images, of `width` x `height` pixels (0: the model's own size).
Status advise_image_memory(Status status, const std::string& path, const ImageOptions& options, int64_t width,
                           int64_t height);

}  // namespace redline::cli
