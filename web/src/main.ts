import "./styles/fonts.css";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/prose.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { keepSteady } from "./ui/steady";

keepSteady();
export default mount(App, { target: document.getElementById("app")! });
