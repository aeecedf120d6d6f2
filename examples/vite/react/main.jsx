/**
 * A page with React. `npm install <the packed SDK> react react-dom vite @vitejs/plugin-react`, and `npx vite` in this folder.
 */
import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { follow, say } from "../talk.js";

function Page() {
  const [texts, setTexts] = useState([]);
  useEffect(() => {
    const following = follow(setTexts);
    return () => void following.then((stop) => stop());
  }, []);
  return (
    <>
      <button type="button" onClick={() => say("hello")}>
        Say hello
      </button>
      <ul>
        {texts.map((text, i) => (
          <li key={i}>{text}</li>
        ))}
      </ul>
    </>
  );
}

createRoot(document.getElementById("page")).render(
  <StrictMode>
    <Page />
  </StrictMode>,
);
