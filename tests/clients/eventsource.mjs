// Follows events until it has so many, and prints each as a line of JSON: {"id", "type", "data"}; errors go to standard error.
import { EventSource } from "eventsource";

const [url, wanted] = process.argv.slice(2);
const types = ["tick", "snapshot", "conversation.created"];
let seen = 0;
const source = new EventSource(url);
source.onopen = () => console.error("open");
source.onerror = (event) => {
  console.error(`error ${event.code ?? ""} ${source.readyState}`);
  if (source.readyState === EventSource.CLOSED) process.exit(3);
};
for (const type of types) {
  source.addEventListener(type, (event) => {
    console.log(JSON.stringify({ id: event.lastEventId, type, data: event.data }));
    if (++seen >= Number(wanted)) {
      source.close();
      process.exit(0);
    }
  });
}
