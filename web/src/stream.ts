// The streams of the server, one for each token, shared by all tabs: browsers open six connections to a server at most.
// In a SharedWorker there is one hub for all tabs; a browser without SharedWorkers has a hub in each tab.

export interface Update {
  topic: string;
  read: string;
  answer?: unknown;
  notes?: string[];
  error?: string;
}

export interface Link {
  // denied: the token is missing, wrong or expired. lost: the server does not answer.
  state: "connecting" | "live" | "lost" | "denied";
  text?: string;
}

// FromTab: a tab watches topics, none while it is hidden; asks for the token of another tab; or names the lock that it
// holds until it is closed.
export type FromTab = { watch: string[]; token: string } | { wantsToken: true } | { lock: string };
export type ToTab = { update: Update } | { link: Link; read?: string } | { token: string };

interface Tab {
  port: MessagePort;
  topics: string[];
  token: string;
}

const tabs = new Set<Tab>();
const streams = new Map<string, Stream>(); // by token

// attach serves the tab at the other end of a port.
export function attach(port: MessagePort) {
  const tab: Tab = { port, topics: [], token: "" };
  tabs.add(tab);
  port.onmessage = ({ data }: MessageEvent<FromTab>) => {
    if ("watch" in data) {
      const before = tab.token;
      tab.topics = data.watch;
      tab.token = data.token;
      if (before !== tab.token) {
        streams.get(before)?.follow();
      }
      if (!streams.has(tab.token)) {
        streams.set(tab.token, new Stream(tab.token));
      }
      streams.get(tab.token)!.follow(tab);
    } else if ("wantsToken" in data) {
      const live = [...streams.values()].find((s) => s.link.state !== "denied" && s.token);
      tell(tab, { token: live?.token ?? "" });
    } else {
      navigator.locks.request(data.lock, () => {
        tabs.delete(tab);
        streams.get(tab.token)?.follow();
      });
    }
  };
}

const tell = (tab: Tab, message: ToTab) => tab.port.postMessage(message);

// silence is how long the server may send nothing. It reads a large cluster for up to a minute.
const silence = 90_000;

class Stream {
  link: Link = { state: "connecting" };
  private read?: string;
  private updates: Record<string, Update> = {};
  private topics: string[] = [];
  private running = new AbortController();

  constructor(readonly token: string) {}

  private tabs = () => [...tabs].filter((tab) => tab.token === this.token);

  // follow reads the topics that tabs watch now, and gives one of them the answers that are known.
  follow(tab?: Tab) {
    const topics = [...new Set(this.tabs().flatMap((t) => t.topics))].sort();
    if (tab && tab.topics.length) {
      tab.topics.filter((topic) => this.updates[topic]).forEach((topic) => tell(tab, { update: this.updates[topic] }));
      tell(tab, { link: this.link, read: this.read });
    }
    const ended = this.link.state === "denied";
    if (topics.join("\n") !== this.topics.join("\n") || (ended && tab)) {
      this.topics = topics;
      this.connect();
    }
    if (!this.tabs().length) {
      this.running.abort();
      streams.delete(this.token);
    }
  }

  private say(link: Link) {
    this.link = link;
    this.tabs().forEach((tab) => tell(tab, { link, read: this.read }));
  }

  private async connect() {
    this.running.abort();
    this.running = new AbortController();
    const signal = this.running.signal;
    this.updates = Object.fromEntries(this.topics.filter((t) => this.updates[t]).map((t) => [t, this.updates[t]]));
    if (!this.topics.length) {
      return;
    }
    for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, 8000)) {
      try {
        const from = "/api/v1/stream?" + this.topics.map((t) => "topic=" + encodeURIComponent(t)).join("&");
        const response = await fetch(from, { headers: { Authorization: "Bearer " + this.token }, signal });
        if (response.status === 401) {
          this.say({ state: "denied", text: await message(response) });
          return;
        }
        if (!response.ok || !response.body) {
          throw new Error(await message(response));
        }
        for await (const event of events(response.body, signal)) {
          this.receive(event);
          pause = 500;
        }
        throw new Error();
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        this.say({ state: "lost", text: error instanceof TypeError ? "" : (error as Error).message });
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  private receive(event: { name: string; data: Update }) {
    if (event.name !== "update") {
      this.read = event.data.read;
      this.say({ state: "live" });
      return;
    }
    const { topic, error } = event.data, last = this.updates[topic];
    // An error leaves the last answer on the page, with its age.
    const update = error && last?.answer ? { ...last, error } : event.data;
    this.updates[topic] = update;
    this.tabs().filter((tab) => tab.topics.includes(topic)).forEach((tab) => tell(tab, { update }));
  }
}

async function* events(body: ReadableStream<Uint8Array<ArrayBuffer>>, signal: AbortSignal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    let late = 0;
    const timeout = new Promise<never>((_, reject) => {
      late = self.setTimeout(() => reject(new Error("the server is silent")), silence);
    });
    const { done, value } = await Promise.race([reader.read(), timeout]);
    clearTimeout(late);
    if (done || signal.aborted) {
      return;
    }
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(text.slice(0, end)) ?? [];
      text = text.slice(end + 2);
      yield { name, data: JSON.parse(data) };
    }
  }
}

export async function message(response: Response): Promise<string> {
  try {
    return (await response.json()).message;
  } catch {
    return response.status + " " + response.statusText;
  }
}
