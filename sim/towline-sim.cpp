// Runs ranks or a mix of jobs on a simulated cluster: what `towline simulate` starts, built on SimGrid's S4U.
//
// It reads one scenario from standard input and writes one line of JSON. It knows no MPI, no policy and no model of memory:
// the scenario names sockets with what they do for n ranks, links, and what each rank does, message by message. So what is
// simulated is decided, and tested, in the one place that also scores placements.
//
// Scenario, a line per item (numbers are doubles unless said otherwise, indices count from 0 in the order of the lines):
//
//   towline-sim 1
//   network LATENCY BANDWIDTH EAGER      of nodes' links; the largest message that does not wait for its receiver
//   memory LATENCY BANDWIDTH SOCKET_LINK of messages within a socket, and between sockets of a node
//   gpulink BANDWIDTH
//   switch UPLINK
//   node SWITCH                          -1: the one that never blocks
//   socket NODE CAPACITY...              cores' worth of work with 1, 2, ... ranks
//   gpu NODE
//   program REPEAT                       how many times bodies are run
//   rank SOCKET GPU                      -1: none. Its operations follow:
//     c SECONDS | s TO TAG BYTES | i TO TAG BYTES | r FROM TAG BYTES | j FROM TAG BYTES | w PEER TAG SENT | a
//     x TO BYTES FROM BYTES TAG | g UP SECONDS DOWN | b (what follows is the body)
//   mix SHARE                            instead of a program: most jobs on a GPU at once, 0: any
//   client NODE SOCKET GPU               a node that jobs run on, with its own GPU or -1
//   pool GPU                             a GPU that jobs without one of their own share
//   job ARRIVAL NODES GPU? REPEAT COMPUTE UP KERNEL DOWN
//   end
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace s4u = simgrid::s4u;

namespace {

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "towline-sim: %s\n", why.c_str());
  std::exit(2);
}

struct Op {
  char kind = 0;
  int to = -1, from = -1;
  unsigned tag = 0;
  double a = 0, b = 0, c = 0;
};

struct Node {
  int at_switch;
  s4u::Link* up;
  s4u::Link* down;
};

struct Place {
  s4u::Host* host;
  int node;
  bool is_gpu;
  // What leads out of it and into it, within its node.
  s4u::Link* out;
  s4u::Link* in;
  s4u::Link* self;
  double busy = 0;
};

struct Rank {
  int socket, gpu;
  std::vector<Op> start, body;
};

struct Job {
  double arrival;
  unsigned nodes;
  bool uses_gpu;
  unsigned repeat;
  double compute, up, kernel, down;
  double started = -1, ended = -1;
  unsigned left = 0;
};

struct Client {
  int node, socket, gpu;
  bool taken = false;
};

struct Scenario {
  double latency = 0, bandwidth = 1, eager = 0;
  double memory_latency = 0, memory_bandwidth = 1, socket_link = 1, gpu_link = 1;
  std::vector<std::pair<s4u::Link*, s4u::Link*>> switches;
  std::vector<Node> nodes;
  std::vector<Place> places; // sockets and GPUs
  std::vector<int> sockets, gpus;
  unsigned repeat = 0;
  std::vector<Rank> ranks;
  bool is_mix = false;
  unsigned share = 0;
  std::vector<Client> clients;
  std::vector<int> pool;
  std::vector<Job> jobs;
};

Scenario scenario;
std::vector<double> marks;
std::vector<double> rank_ends;

int index_below(std::istringstream& words, size_t count, bool or_none, const std::string& line) {
  long value;
  if (!(words >> value) || value < (or_none ? -1 : 0) || value >= static_cast<long>(count)) refuse("wrong number in: " + line);
  return static_cast<int>(value);
}

double amount(std::istringstream& words, const std::string& line) {
  double value;
  if (!(words >> value) || !(value >= 0) || value > 1e18) refuse("wrong amount in: " + line);
  return value;
}

unsigned count(std::istringstream& words, const std::string& line) {
  const double value = amount(words, line);
  if (value > 1e9 || value != static_cast<double>(static_cast<unsigned>(value))) refuse("wrong count in: " + line);
  return static_cast<unsigned>(value);
}

// Ranks that come later may be named: their number is checked when all are known.
Op read_op(char kind, std::istringstream& words, const std::string& line) {
  Op op;
  op.kind = kind;
  bool good = true;
  switch (kind) {
  case 'c': op.a = amount(words, line); break;
  case 's': case 'i': good = static_cast<bool>(words >> op.to >> op.tag); op.a = amount(words, line); break;
  case 'r': case 'j': good = static_cast<bool>(words >> op.from >> op.tag); op.b = amount(words, line); break;
  case 'w': good = static_cast<bool>(words >> op.to >> op.tag); op.a = amount(words, line); break;
  case 'a': break;
  case 'x':
    good = static_cast<bool>(words >> op.to);
    op.a = amount(words, line);
    good = good && words >> op.from;
    op.b = amount(words, line);
    good = good && words >> op.tag;
    break;
  case 'g': op.a = amount(words, line); op.b = amount(words, line); op.c = amount(words, line); break;
  default: good = false;
  }
  if (!good) refuse("not understood: " + line);
  return op;
}

s4u::Link* make_link(s4u::NetZone* zone, const std::string& name, double bandwidth, double latency) {
  if (!(bandwidth > 0)) refuse("a link without bandwidth: " + name);
  return zone->create_link(name, bandwidth)->set_latency(latency)->seal();
}

void add_socket(s4u::NetZone* zone, std::istringstream& words, const std::string& line) {
  int node = index_below(words, scenario.nodes.size(), false, line);
  std::vector<double> capacity;
  for (double value; words >> value;) {
    if (!(value > 0)) refuse("wrong capacity in: " + line);
    capacity.push_back(value);
  }
  if (capacity.empty()) refuse("a socket without capacity: " + line);
  const std::string name = "s" + std::to_string(scenario.places.size());
  auto* host = zone->create_host(name, 1.0)->set_core_count(static_cast<int>(capacity.size()));
  host->set_sharing_policy(s4u::Host::SharingPolicy::NONLINEAR, [capacity](double, int n) {
    return n < 1 ? 0.0 : capacity[std::min<size_t>(n, capacity.size()) - 1];
  });
  host->seal();
  Place place{host, node, false, make_link(zone, name + "-out", scenario.socket_link, scenario.memory_latency),
              make_link(zone, name + "-in", scenario.socket_link, 0),
              make_link(zone, name + "-self", scenario.memory_bandwidth, scenario.memory_latency)};
  scenario.sockets.push_back(static_cast<int>(scenario.places.size()));
  scenario.places.push_back(place);
}

void add_gpu(s4u::NetZone* zone, std::istringstream& words, const std::string& line) {
  int node = index_below(words, scenario.nodes.size(), false, line);
  const std::string name = "g" + std::to_string(scenario.places.size());
  auto* host = zone->create_host(name, 1.0)->seal();
  Place place{host, node, true, make_link(zone, name + "-out", scenario.gpu_link, 0),
              make_link(zone, name + "-in", scenario.gpu_link, 0), nullptr};
  scenario.gpus.push_back(static_cast<int>(scenario.places.size()));
  scenario.places.push_back(place);
}

// Every pair of places has its route: out of one, over nodes and switches, into the other.
void add_routes(s4u::NetZone* zone) {
  for (const auto& a : scenario.places)
    for (const auto& b : scenario.places) {
      std::vector<s4u::LinkInRoute> links;
      if (a.host == b.host) {
        if (!a.self) continue;
        links.emplace_back(a.self);
      } else if (a.node == b.node) {
        // A GPU hangs on a socket: only its own link counts.
        if (a.is_gpu || b.is_gpu) {
          if (a.is_gpu) links.emplace_back(a.out);
          if (b.is_gpu) links.emplace_back(b.in);
        } else {
          links.emplace_back(a.out);
          links.emplace_back(b.in);
        }
      } else {
        const auto &from = scenario.nodes[a.node], &to = scenario.nodes[b.node];
        if (a.is_gpu) links.emplace_back(a.out);
        links.emplace_back(from.up);
        if (from.at_switch >= 0 && to.at_switch >= 0 && from.at_switch != to.at_switch) {
          links.emplace_back(scenario.switches[from.at_switch].first);
          links.emplace_back(scenario.switches[to.at_switch].second);
        }
        links.emplace_back(to.down);
        if (b.is_gpu) links.emplace_back(b.in);
      }
      zone->add_route(a.host->get_netpoint(), b.host->get_netpoint(), nullptr, nullptr, links, false);
    }
}

void read_scenario(s4u::NetZone* zone) {
  std::string line, word;
  if (!std::getline(std::cin, line) || line != "towline-sim 1") refuse("the input is no scenario of version 1");
  bool in_body = false, ended = false;
  while (!ended && std::getline(std::cin, line)) {
    std::istringstream words(line);
    if (!(words >> word)) continue;
    if (word.size() == 1) {
      if (scenario.ranks.empty()) refuse("an operation before any rank: " + line);
      if (word == "b") { in_body = true; continue; }
      auto& rank = scenario.ranks.back();
      (in_body ? rank.body : rank.start).push_back(read_op(word[0], words, line));
    } else if (word == "network") {
      scenario.latency = amount(words, line);
      scenario.bandwidth = amount(words, line);
      scenario.eager = amount(words, line);
    } else if (word == "memory") {
      scenario.memory_latency = amount(words, line);
      scenario.memory_bandwidth = amount(words, line);
      scenario.socket_link = amount(words, line);
    } else if (word == "gpulink") {
      scenario.gpu_link = amount(words, line);
    } else if (word == "switch") {
      double uplink = amount(words, line);
      const std::string name = "w" + std::to_string(scenario.switches.size());
      scenario.switches.emplace_back(make_link(zone, name + "-up", uplink, 0), make_link(zone, name + "-down", uplink, 0));
    } else if (word == "node") {
      int at = index_below(words, scenario.switches.size(), true, line);
      const std::string name = "n" + std::to_string(scenario.nodes.size());
      scenario.nodes.push_back({at, make_link(zone, name + "-up", scenario.bandwidth, scenario.latency),
                                make_link(zone, name + "-down", scenario.bandwidth, 0)});
    } else if (word == "socket") {
      add_socket(zone, words, line);
    } else if (word == "gpu") {
      add_gpu(zone, words, line);
    } else if (word == "program") {
      scenario.repeat = count(words, line);
    } else if (word == "rank") {
      Rank rank;
      rank.socket = index_below(words, scenario.sockets.size(), false, line);
      rank.gpu = index_below(words, scenario.gpus.size(), true, line);
      scenario.ranks.push_back(std::move(rank));
      in_body = false;
    } else if (word == "mix") {
      scenario.is_mix = true;
      scenario.share = count(words, line);
    } else if (word == "client") {
      Client client;
      client.node = index_below(words, scenario.nodes.size(), false, line);
      client.socket = index_below(words, scenario.sockets.size(), false, line);
      client.gpu = index_below(words, scenario.gpus.size(), true, line);
      scenario.clients.push_back(client);
    } else if (word == "pool") {
      scenario.pool.push_back(index_below(words, scenario.gpus.size(), false, line));
    } else if (word == "job") {
      Job job;
      job.arrival = amount(words, line);
      job.nodes = count(words, line);
      job.uses_gpu = amount(words, line) > 0;
      job.repeat = count(words, line);
      job.compute = amount(words, line);
      job.up = amount(words, line);
      job.kernel = amount(words, line);
      job.down = amount(words, line);
      scenario.jobs.push_back(job);
    } else if (word == "end") {
      ended = true;
    } else {
      refuse("not understood: " + line);
    }
  }
  if (!ended) refuse("the scenario is cut: it has no `end`");
  const int ranks = static_cast<int>(scenario.ranks.size());
  for (const auto& rank : scenario.ranks)
    for (const auto* ops : {&rank.start, &rank.body})
      for (const auto& op : *ops) {
        if (op.to < -1 || op.to >= ranks || op.from < -1 || op.from >= ranks) refuse("an operation names a rank that is not there");
        if (op.kind == 'g' && rank.gpu < 0) refuse("a rank without GPU uses one");
      }
}

// Uses a GPU: bytes go there, it computes, bytes come back.
void use_gpu(s4u::Host* here, int gpu, double up, double seconds, double down) {
  auto& place = scenario.places[scenario.gpus[gpu]];
  if (up > 0) s4u::Comm::sendto(here, place.host, static_cast<uint64_t>(up));
  if (seconds > 0) {
    s4u::Exec::init()->set_flops_amount(seconds)->set_host(place.host)->start()->wait();
    place.busy += seconds;
  }
  if (down > 0) s4u::Comm::sendto(place.host, here, static_cast<uint64_t>(down));
}

// Plays what a rank does. Its requests are known by peer, tag and direction, first made first waited for.
class Player {
public:
  explicit Player(int me) : me_(me), rank_(scenario.ranks[me]) {}

  void operator()() {
    run(rank_.start);
    for (unsigned turn = 0; turn < scenario.repeat; turn++) {
      run(rank_.body);
      marks[turn] = std::max(marks[turn], s4u::Engine::get_clock());
    }
    wait_all();
    rank_ends[me_] = s4u::Engine::get_clock();
  }

private:
  using Key = std::tuple<int, unsigned, bool>;

  // Small and large messages have mailboxes of their own: those for small ones have a receiver at once, so that the message
  // travels before it is asked for.
  s4u::Mailbox* mailbox(int from, int to, unsigned tag, bool small) {
    const uint64_t peer = static_cast<uint64_t>(from == me_ ? to : from);
    const uint64_t key = peer << 34 | static_cast<uint64_t>(tag) << 2 | (from == me_ ? 2u : 0u) | (small ? 1u : 0u);
    auto& known = mailboxes_[key];
    if (!known) {
      char name[64];
      std::snprintf(name, sizeof name, "%d>%d.%u%c", from, to, tag, small ? 's' : 'l');
      known = s4u::Mailbox::by_name(name);
      if (small) known->set_receiver(actors[to]);
    }
    return known;
  }

  s4u::CommPtr send(int to, unsigned tag, double bytes) {
    static int contents;
    const bool small = bytes <= scenario.eager;
    auto comm = mailbox(me_, to, tag, small)->put_init(&contents, static_cast<uint64_t>(std::max(bytes, 1.0)));
    if (small) {
      comm->detach();
      return nullptr;
    }
    comm->start();
    return comm;
  }

  s4u::CommPtr receive(int from, unsigned tag, double bytes) {
    static int* contents;
    return mailbox(from, me_, tag, bytes <= scenario.eager)->get_async<int>(&contents);
  }

  void wait_all() {
    for (auto& [key, comms] : requests_)
      for (auto& comm : comms)
        if (comm) comm->wait();
    requests_.clear();
  }

  void run(const std::vector<Op>& ops) {
    for (const auto& op : ops) {
      switch (op.kind) {
      case 'c':
        if (op.a > 0) {
          s4u::this_actor::execute(op.a);
          scenario.places[scenario.sockets[rank_.socket]].busy += op.a;
        }
        break;
      case 's': if (auto comm = send(op.to, op.tag, op.a)) comm->wait(); break;
      case 'i': requests_[{op.to, op.tag, true}].push_back(send(op.to, op.tag, op.a)); break;
      case 'r': receive(op.from, op.tag, op.b)->wait(); break;
      case 'j': requests_[{op.from, op.tag, false}].push_back(receive(op.from, op.tag, op.b)); break;
      case 'w': {
        auto& comms = requests_[{op.to, op.tag, op.a > 0}];
        if (comms.empty()) refuse("a rank waits for a request that it has not made");
        auto comm = comms.front();
        comms.pop_front();
        if (comm) comm->wait();
        break;
      }
      case 'a': wait_all(); break;
      case 'x': {
        s4u::CommPtr in, out;
        if (op.from >= 0) in = receive(op.from, op.tag, op.b);
        if (op.to >= 0) out = send(op.to, op.tag, op.a);
        if (in) in->wait();
        if (out) out->wait();
        break;
      }
      case 'g': use_gpu(s4u::this_actor::get_host(), rank_.gpu, op.a, op.b, op.c); break;
      }
    }
  }

  int me_;
  const Rank& rank_;
  std::map<Key, std::deque<s4u::CommPtr>> requests_;
  std::unordered_map<uint64_t, s4u::Mailbox*> mailboxes_;

public:
  static std::vector<s4u::ActorPtr> actors;
};
std::vector<s4u::ActorPtr> Player::actors;

// First come, first served: the oldest job waits until as many nodes are free as it wants, and with a GPU of the pool below
// its share if it uses one. It starts jobs; who is told is the scheduler's mailbox.
class Scheduler {
public:
  void operator()() {
    auto* news = s4u::Mailbox::by_name("news");
    std::vector<unsigned> sessions(scenario.gpus.size(), 0);
    size_t next = 0, ended = 0;
    while (ended < scenario.jobs.size()) {
      while (next < scenario.jobs.size() && scenario.jobs[next].arrival <= s4u::Engine::get_clock() && start(next, sessions)) next++;
      const bool comes = next < scenario.jobs.size() && scenario.jobs[next].arrival > s4u::Engine::get_clock();
      std::unique_ptr<End> end;
      if (comes) {
        try {
          end.reset(news->get<End>(scenario.jobs[next].arrival - s4u::Engine::get_clock()));
        } catch (const simgrid::TimeoutException&) {
          continue;
        }
      } else {
        end.reset(news->get<End>());
      }
      scenario.clients[end->client].taken = false;
      if (end->gpu >= 0) sessions[end->gpu]--;
      auto& job = scenario.jobs[end->job];
      if (--job.left == 0) {
        job.ended = s4u::Engine::get_clock();
        ended++;
      }
    }
  }

private:
  struct End {
    size_t job, client;
    int gpu;
  };

  static bool start(size_t index, std::vector<unsigned>& sessions) {
    auto& job = scenario.jobs[index];
    std::vector<size_t> free;
    for (size_t client = 0; client < scenario.clients.size() && free.size() < job.nodes; client++)
      if (!scenario.clients[client].taken) free.push_back(client);
    if (free.size() < job.nodes) return false;
    // All or none: its sessions are counted on a copy first.
    auto planned = sessions;
    std::vector<int> gpus;
    for (size_t client : free) {
      int gpu = job.uses_gpu ? scenario.clients[client].gpu : -1;
      if (job.uses_gpu && gpu < 0) {
        for (int candidate : scenario.pool)
          if (gpu < 0 || planned[candidate] < planned[gpu]) gpu = candidate;
        if (gpu < 0) refuse("a job needs a GPU, and there is none");
        if (scenario.share > 0 && planned[gpu] >= scenario.share) return false;
      }
      if (gpu >= 0) planned[gpu]++;
      gpus.push_back(gpu);
    }
    sessions = planned;
    job.started = s4u::Engine::get_clock();
    job.left = job.nodes;
    for (size_t at = 0; at < free.size(); at++) {
      const size_t client = free[at];
      const int gpu = gpus[at];
      scenario.clients[client].taken = true;
      auto* host = scenario.places[scenario.sockets[scenario.clients[client].socket]].host;
      s4u::Actor::create("job", host, [index, client, gpu]() {
        const auto& job = scenario.jobs[index];
        auto& place = scenario.places[scenario.sockets[scenario.clients[client].socket]];
        for (unsigned turn = 0; turn < job.repeat; turn++) {
          if (job.compute > 0) {
            s4u::this_actor::execute(job.compute);
            place.busy += job.compute;
          }
          if (gpu >= 0) use_gpu(place.host, gpu, job.up, job.kernel, job.down);
        }
        s4u::Mailbox::by_name("news")->put(new End{index, client, gpu}, 1);
      });
    }
    return true;
  }
};

void print_list(const char* name, const std::vector<double>& values) {
  std::printf(",\"%s\":[", name);
  for (size_t index = 0; index < values.size(); index++) std::printf("%s%.17g", index ? "," : "", values[index]);
  std::printf("]");
}

} // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    std::printf("towline-sim 1, SimGrid %d.%d\n", SIMGRID_VERSION_MAJOR, SIMGRID_VERSION_MINOR);
    return 0;
  }
  s4u::Engine engine(&argc, argv);
  // What links do is given, not fitted to TCP: no factors, no windows.
  s4u::Engine::set_config("network/model:CM02");
  s4u::Engine::set_config("network/TCP-gamma:0");
  s4u::Engine::set_config("network/crosstraffic:0");
  s4u::Engine::set_config("contexts/stack-size:128");
  auto* zone = s4u::create_full_zone("cluster");
  read_scenario(zone);
  add_routes(zone);
  // Messages of the scheduler cost nothing: it sits where it hears all.
  auto* desk = scenario.places.empty() ? nullptr : scenario.places.front().host;
  if (!desk) refuse("a cluster without sockets");
  zone->seal();
  marks.assign(scenario.repeat, 0);
  rank_ends.assign(scenario.ranks.size(), -1);
  if (scenario.is_mix) {
    s4u::Actor::create("scheduler", desk, Scheduler());
  } else {
    for (size_t me = 0; me < scenario.ranks.size(); me++) {
      auto* host = scenario.places[scenario.sockets[scenario.ranks[me].socket]].host;
      Player::actors.push_back(s4u::Actor::init("rank", host));
    }
    for (size_t me = 0; me < scenario.ranks.size(); me++) Player::actors[me]->start(Player(static_cast<int>(me)));
  }
  engine.run();
  std::vector<double> sockets, gpus, started, ended;
  for (int place : scenario.sockets) sockets.push_back(scenario.places[place].busy);
  for (int place : scenario.gpus) gpus.push_back(scenario.places[place].busy);
  for (const auto& job : scenario.jobs) {
    started.push_back(job.started);
    ended.push_back(job.ended);
  }
  // A rank that waits for ever makes SimGrid end the others: its end is missing.
  for (double end : rank_ends)
    if (end < 0) refuse("the program never ends: ranks wait for each other");
  for (double end : ended)
    if (end < 0) refuse("a job never ended");
  std::printf("{\"version\":1,\"end\":%.17g", s4u::Engine::get_clock());
  print_list("marks", marks);
  print_list("socket_busy", sockets);
  print_list("gpu_busy", gpus);
  print_list("started", started);
  print_list("ended", ended);
  std::printf("}\n");
  return 0;
}
