// The SharedWorker of all tabs.
import { attach } from "./stream";

(self as unknown as { onconnect: (e: MessageEvent) => void }).onconnect = (e) => attach(e.ports[0]);
