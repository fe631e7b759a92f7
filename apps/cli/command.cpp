#include "apps/cli/command.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/files/input_stream.h"
#include "apps/files/npy_file.h"

namespace tersewire::apps {
namespace {

namespace fs = std::filesystem;

// write() takes no more at once on Linux.
constexpr std::size_t kMaxWriteBytes = std::size_t{1} << 30;

constexpr std::string_view kTemporaryPrefix = ".tersewire-";
constexpr std::string_view kTemporarySuffix = ".tmp";

const char* advice(int error) {
  switch (error) {
    case ENOSPC:
    case EFBIG:
    case EDQUOT:
      return "make room or choose another place";
    case EACCES:
    case EPERM:
    case EROFS:
      return "check its permissions";
    case EISDIR:
      return "name a file, not a directory";
    case ENOMEM:
      return "use a machine with more";
    default:
      return "check the path";
  }
}

}  // namespace

bool told_by_rank_0(const std::exception& failure) {
  if (dynamic_cast<const WrongUsage*>(&failure) != nullptr) return true;
  const auto* error = dynamic_cast<const Error*>(&failure);
  return error != nullptr &&
         (error->code() == ErrorCode::kAborted || error->code() == ErrorCode::kCancelled);
}

void fail_file(const std::string& path, const char* done, int error) {
  throw Error(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kResourceExhausted,
              fmt::format("{} cannot be {}: {}; {}", path, done,
                          std::generic_category().message(error), advice(error)));
}

namespace {

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// Where a link leads, to a file that need not be there yet.
fs::path followed(fs::path path) {
  constexpr int kMostLinks = 40;  // as the system's
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i) {
    const fs::path next = fs::read_symlink(path, error);
    if (error) break;
    path = next.is_absolute() ? next : path.parent_path() / next;
  }
  return path;
}

// A rename is on the disk when its directory is. Some file systems cannot say so (EINVAL).
void sync_directory_of(const std::string& file, const std::string& path) {
  const fs::path parent = fs::path(file).parent_path();
  const Descriptor directory(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_CLOEXEC));
  // A directory that may be written but not read cannot be opened here; the file is in its place.
  if (directory.get() < 0) return;
  if (::fsync(directory.get()) != 0 && errno != EINVAL) fail_file(path, "written", errno);
}

}  // namespace

std::shared_ptr<const Codec> codec_argument(const std::string& text) {
  try {
    return make_codec(text);
  } catch (const Error& error) {
    throw WrongUsage(error.what());
  }
}

std::string shown(const std::string& path) {
  return path == kStandardStream ? "standard input" : path;
}

void refuse_same_file(const std::string& first, const std::string& second) {
  if (first == kStandardStream || second == kStandardStream) return;
  std::error_code none;
  if (first == second ||
      (fs::is_regular_file(first, none) && fs::equivalent(first, second, none))) {
    throw WrongUsage(fmt::format("{} and {} are the same file; name two", first, second));
  }
}

std::optional<Bytes> read_file_if_exists(const std::string& path) {
  const auto stream = InputStream::if_exists(path);
  if (!stream) return std::nullopt;
  try {
    return stream->read_rest();
  } catch (const std::bad_alloc&) {
    fail_file(path, "read", ENOMEM);
  }
}

Bytes read_file(const std::string& path) {
  std::optional<Bytes> bytes = read_file_if_exists(path);
  if (!bytes) fail_file(path, "read", ENOENT);
  return std::move(*bytes);
}

Floats load_npy_floats(const std::string& path) {
  InputStream stream(path);
  return with_file(path, [&] {
    NpyReader reader(stream);
    Floats values;
    reader.read(reader.header().elems, values);
    reader.expect_end();
    return values;
  });
}

NewFile::NewFile(std::string path) : path_(std::move(path)), target_(followed(path_).string()) {
  if (path_ == kStandardStream) {
    open_standard_output();
    return;
  }
  struct stat status {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) fail_file(path_, "written", errno);
  if (exists && S_ISDIR(status.st_mode)) fail_file(path_, "written", EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {
    replaces_ = false;
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_file(path_, "written", errno);
    return;
  }
  if (exists) {
    if (::access(path_.c_str(), W_OK) != 0) fail_file(path_, "written", errno);
    mode_ = status.st_mode & 07777U;
  }
  open_temporary();
  if (exists && ::fchmod(descriptor_, mode_) != 0) fail_file(path_, "written", errno);
}

void NewFile::open_standard_output() {
  path_ = "standard output";
  if (::isatty(STDOUT_FILENO) != 0) {
    throw WrongUsage("standard output is a terminal; redirect it, or name a file");
  }
  replaces_ = false;
  descriptor_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  if (descriptor_ < 0) fail_file(path_, "written", errno);
}

bool is_temporary_file(std::string_view name) {
  return name.starts_with(kTemporaryPrefix) && name.ends_with(kTemporarySuffix);
}

template <typename Make>
void NewFile::name_temporary(const Make& make) {
  for (int i = 0; temporary_.empty(); ++i) {
    const std::string name =
        fmt::format("{}{}-{}{}", kTemporaryPrefix, ::getpid(), i, kTemporarySuffix);
    const std::string candidate = (fs::path(target_).parent_path() / name).string();
    if (make(candidate.c_str())) {
      temporary_ = candidate;
    } else if (errno != EEXIST) {
      fail_file(path_, "written", errno);
    }
  }
}

void NewFile::open_temporary() {
  const fs::path directory = fs::path(target_).parent_path();
  // Not every file system has files without names, and their names are given by way of /proc.
  if (::access("/proc/self/fd", X_OK) == 0) {
    descriptor_ = ::open(directory.empty() ? "." : directory.c_str(),
                         O_WRONLY | O_TMPFILE | O_CLOEXEC, mode_);
  }
  if (descriptor_ >= 0) return;
  name_temporary([&](const char* name) {
    descriptor_ = ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode_);
    return descriptor_ >= 0;
  });
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void NewFile::write(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::write(descriptor_, bytes.data(), std::min(bytes.size(), kMaxWriteBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) throw ReaderGone();
    if (written < 0) fail_file(path_, "written", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void NewFile::finish() {
  if (replaces_ && ::fsync(descriptor_) != 0) fail_file(path_, "written", errno);
  if (replaces_ && temporary_.empty()) {
    const std::string nameless = fmt::format("/proc/self/fd/{}", descriptor_);
    name_temporary([&](const char* name) {
      return ::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
    });
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_file(path_, "written", errno);
}

void NewFile::publish() {
  if (!replaces_) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_file(path_, "written", errno);
  temporary_.clear();
  sync_directory_of(target_, path_);
}

void write_new_file(const std::string& path, ByteView bytes) {
  NewFile file(path);
  file.write(bytes);
  file.finish();
  file.publish();
}

std::string json_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string string_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

nlohmann::json parse_json(ByteView bytes) {
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  return nlohmann::json::parse(begin, begin + bytes.size(), nullptr, false);
}

void print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) throw ReaderGone();
  fail_file("standard output", "written", errno);
}

void complain(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

namespace {

std::atomic<bool> quiet{false};

}  // namespace

void note(std::string_view text) noexcept {
  if (!quiet) complain(text);
}

void be_quiet() noexcept { quiet = true; }

}  // namespace tersewire::apps
