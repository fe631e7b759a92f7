// Preloaded into the program: it loads the library FORKING_PROGRAM_LOADS, and forks a process for
// each request on its standard input, a socket, in place of what it was started for. A request is a
// message of three descriptors, which become the standard ones, and of texts that each end with a
// zero: the directory, the number of arguments, these, the variables. The answer is the process's
// number. It is a child of the nearest subreaper, not of this one.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
Main program = nullptr;

struct Request {
  std::string text;
  std::array<int, 3> descriptors;
};

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  _exit(1);
}

// False once nobody asks any more.
bool receive(Request& request) {
  request.text.resize(1 << 20);
  iovec text{request.text.data(), request.text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof request.descriptors)> control{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t size = recvmsg(STDIN_FILENO, &message, MSG_CMSG_CLOEXEC);
  if (size < 0) fail("recvmsg");
  if (size == 0) return false;
  request.text.resize(static_cast<std::size_t>(size));
  std::memcpy(request.descriptors.data(), CMSG_DATA(CMSG_FIRSTHDR(&message)),
              sizeof request.descriptors);
  return true;
}

// The texts are the program's as long as it lives.
[[noreturn]] void run(Request& request) {
  for (int i = 0; i < 3; ++i) dup2(request.descriptors[static_cast<std::size_t>(i)], i);
  for (const int descriptor : request.descriptors) close(descriptor);
  std::vector<char*> texts;
  for (char* text = request.text.data(); text < request.text.data() + request.text.size();
       text += std::strlen(text) + 1) {
    texts.push_back(text);
  }
  if (chdir(texts[0]) != 0) fail(texts[0]);
  const auto variables = texts.begin() + 2 + std::strtol(texts[1], nullptr, 10);
  clearenv();
  for (auto variable = variables; variable != texts.end(); ++variable) putenv(*variable);
  std::vector<char*> arguments(texts.begin() + 2, variables);
  arguments.push_back(nullptr);
  std::exit(program(static_cast<int>(arguments.size()) - 1, arguments.data(), environ));
}

int serve(int, char**, char**) {
  // As the program does: a thread of OpenBLAS would be missing in what is forked.
  setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/0);
  if (dlopen(std::getenv("FORKING_PROGRAM_LOADS"), RTLD_LAZY | RTLD_LOCAL) == nullptr)
    fail(dlerror());
  auto* const number = static_cast<pid_t*>(
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Request request;
  while (receive(request)) {
    *number = 0;
    const pid_t between = fork();
    if (between < 0) fail("fork");
    if (between == 0) {
      const pid_t child = fork();
      if (child == 0) run(request);
      *number = child;
      _exit(0);
    }
    waitpid(between, nullptr, 0);
    for (const int descriptor : request.descriptors) close(descriptor);
    if (write(STDIN_FILENO, number, sizeof *number) != sizeof *number) fail("write");
  }
  return 0;
}

}  // namespace

extern "C" int __libc_start_main(Main main, int argc, char** argv, Main init, void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {
  using Start = decltype(&__libc_start_main);
  program = main;
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(serve, argc, argv, init, fini, rtld_fini, stack_end);
}
