// A libtorch module of your own: three workers train it, and what they exchange is compressed.
#include <tersewire/tersewire.h>
#include <torch/torch.h>

#include <cstdio>
#include <future>

struct Net : torch::nn::Module {
  torch::nn::Linear hidden{16, 64}, out{64, 1};
  Net() { register_module("hidden", hidden), register_module("out", out); }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::tanh(hidden(x))); }
};

// Every worker runs this with the same initial parameters. Returns the loss of its last step.
float train(tersewire::Transport& transport, std::shared_ptr<Net> net, int steps) {
  tersewire::Job job;
  job.workers = transport.size();
  job.exchange = "all-gather";
  job.push_codec = "3lc";
  job.part_values = tersewire::Job::kWholeTensors;  // libtorch's optimizer takes no less
  std::vector<torch::Tensor> parameters = net->parameters();
  std::vector<std::span<float>> model;
  const auto elems = [](const torch::Tensor& t) { return static_cast<std::size_t>(t.numel()); };
  for (const torch::Tensor& p : parameters) {
    job.tensors.push_back({"tensor " + std::to_string(model.size()), {elems(p)}});
    model.emplace_back(p.data_ptr<float>(), elems(p));
  }
  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.02).momentum(0.9));
  // What the workers' mean gradient would change in a tensor. It is pull() that changes it.
  const auto update = [&](const tersewire::Part& part, std::span<const float> mean,
                          std::span<float> delta) {
    const torch::NoGradGuard no_grad;
    torch::Tensor& p = parameters[part.tensor];
    const torch::Tensor before = p.clone();
    p.mutable_grad() = torch::from_blob(const_cast<float*>(mean.data()), p.sizes());
    sgd.step();  // of p alone: no other parameter has a gradient now
    p.mutable_grad().reset();
    torch::from_blob(delta.data(), p.sizes()).copy_(p - before);
    p.copy_(before);
  };
  const auto worker = tersewire::make_communicator(job, transport, update);
  auto random = torch::make_generator<torch::CPUGeneratorImpl>(transport.rank() + 1);
  torch::Tensor loss;
  for (int step = 0; step < steps; ++step) {
    worker->begin_step();
    for (std::size_t i = 0; i < model.size(); ++i) worker->pull(i, model[i]);
    const torch::Tensor x = torch::randn({32, 16}, random);  // this worker's own data
    loss = torch::mse_loss(net->forward(x), torch::sin(4 * x.mean(1, true)));
    loss.backward();
    for (std::size_t i = model.size(); i-- > 0; parameters[i].mutable_grad().reset()) {
      worker->push(i, {parameters[i].grad().data_ptr<float>(), model[i].size()});
    }
  }
  worker->finish(model);
  return loss.item<float>();
}

// Workers are threads here. On a cluster each is a process that mpirun starts, whose main() calls
// train() once, with tersewire::join_mpi_network()'s transport.
int main() {
  torch::set_num_threads(1);
  const auto network = tersewire::make_in_process_network(3);
  std::vector<std::future<float>> losses;
  for (const auto& end : network) {
    torch::manual_seed(1);
    const auto net = std::make_shared<Net>();
    losses.push_back(std::async(std::launch::async, train, std::ref(*end), net, 500));
  }
  float worst = 0;
  for (std::future<float>& loss : losses) worst = std::max(worst, loss.get());
  std::printf("loss %.4f\n", worst);
  return worst < 0.05F ? 0 : 1;
}
