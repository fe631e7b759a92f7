// A node that is told that its machine is about to go: it saves what it has, and ends in time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace tersewire::apps {

// Sets `interrupted` once the file is there, as a signal does. Where the program still runs when
// the limit is nearly over, after the first signal or the file, it is ended where it stands.
class NoticeWatch {
 public:
  // How things stand at that moment.
  struct Standing {
    bool saved = false;  // what the node has: the program ends with 0
    std::string sentence;
  };

  // LIMIT, as 30s, or LIMIT,FILE; an empty text: it does nothing. Throws WrongUsage for any other,
  // and kFailedPrecondition where the file is there already.
  explicit NoticeWatch(const std::string& text);

  // Whom to ask, from now on: it is called by another thread, perhaps when the caller has returned.
  void ask(std::function<Standing()> standing);

 private:
  void run(const std::stop_token& stop);
  [[nodiscard]] bool has_come() const;

  std::string limit_text_;
  std::chrono::milliseconds limit_{};
  std::string file_;  // empty: signals alone count
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::function<Standing()> standing_;
  std::jthread thread_;
};

}  // namespace tersewire::apps
