// Preloaded into a program: it stands still before it locks a directory, until there is a file
// HELD_UNTIL. From then on there is a file HELD_UNTIL.held.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

extern "C" int flock(int descriptor, int operation) {
  if (const char* until = std::getenv("HELD_UNTIL")) {
    std::ofstream(std::string(until) + ".held");
    while (!std::filesystem::exists(until)) usleep(1000);
  }
  using Lock = int (*)(int, int);
  return reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "flock"))(descriptor, operation);
}
