/** The shared worker of all windows of one identity. */

import { Hubs } from "./hub.js";

const hubs = new Hubs();

globalThis.onconnect = ({ ports: [port] }) => hubs.admit(port);
