#include "server/web_bundle.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace redline::server {
namespace {

TEST(WebBundle, HasTheFilesOfDist) {
  std::set<std::string_view> paths, tags;
  for (const WebFile& file : web_files()) {
    std::string name = file.path == "/" ? "index.html" : std::string(file.path.substr(1));
    if (file.encoding == "gzip") name += ".gz";
    std::ifstream in(std::string(REDLINE_SOURCE_DIR "/web/dist/") + name, std::ios::binary);
    EXPECT_EQ(file.bytes, std::string(std::istreambuf_iterator<char>(in), {})) << name;
    EXPECT_FALSE(file.content_type.empty()) << name;
    EXPECT_TRUE(file.etag.starts_with('"') && file.etag.ends_with('"')) << name;
    paths.insert(file.path);
    tags.insert(file.etag);
  }
  for (const char* path : {"/", "/app.js", "/app.css", "/manifest.webmanifest", "/icon.svg"})
    EXPECT_TRUE(paths.contains(path)) << path;
  EXPECT_EQ(tags.size(), web_files().size());
}

}  // namespace
}  // namespace redline::server
