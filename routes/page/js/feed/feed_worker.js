/** The shared worker of all windows of one identity. */

import { admit } from "./hub.js";

globalThis.onconnect = ({ ports: [port] }) => admit(port);
