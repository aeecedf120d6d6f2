/**
 * The whole app: the first page, then conversations next to the open one, and what lies over them.
 */
import { useEffect, useState } from "preact/hooks";
import { ConversationView } from "./conversation.tsx";
import { followNames } from "./names.ts";
import { followOperator, noticeSeen } from "./notices.ts";
import { followNews } from "./notify.ts";
import { Button, Icon, IconButton, onDemand, useSession, useStored } from "./parts.tsx";
import { People } from "./people.tsx";
import { arrivedBy, forgetArrival, type Panel, usePlace } from "./place.ts";
import { goOn, isTrial, keepStorage, me, move, start, takeVersion, warn } from "./session.ts";
import { Unlock, Welcome } from "./welcome.tsx";
import { t } from "./words/language.ts";

const PanelView = onDemand(async () => (await import("./panels.tsx")).PanelView);

export function App() {
  const { phase, toast, next } = useSession();
  return (
    <>
      {isTrial && <p class="banner">{t.trial}</p>}
      {next !== null && (
        <div class="banner" role="status">
          <span>{t.newVersion}</span>
          <Button onClick={takeVersion}>{t.loadIt}</Button>
        </div>
      )}
      {phase.is === "new" && <Welcome />}
      {phase.is === "locked" && <Unlock {...phase} />}
      {phase.is === "opening" && (
        <p class="centered" role="status">
          {phase.isSlow ? t.openingSlow : t.opening}
        </p>
      )}
      {phase.is === "failed" && (
        <main class="centered">
          <p role="alert">{phase.problem}</p>
          <Button main onClick={start}>
            {t.tryAgain}
          </Button>
        </main>
      )}
      {phase.is === "ready" && <Home />}
      <div role="status" class="toasts">
        {toast !== null && <p class="toast">{toast}</p>}
      </div>
    </>
  );
}

function Home() {
  const { warnings } = useSession();
  const { conversation, message } = usePlace();
  const [panel, setPanel] = useState<Panel | null>(null);
  const people = useStored(() => me.store.people(), []);
  const hasContact = people?.some(({ isKnown }) => isKnown) ?? false;
  useEffect(() => followNews(), []);
  useEffect(() => followNames(), []);
  useEffect(() => followOperator(), []);
  useEffect(() => {
    const arrive = () => {
      const { invited } = arrivedBy();
      if (invited === null) return;
      forgetArrival();
      setPanel({ is: "write", to: invited });
    };
    arrive();
    addEventListener("hashchange", arrive);
    return () => removeEventListener("hashchange", arrive);
  }, []);
  useEffect(() => {
    if (hasContact) void keepStorage().catch(() => undefined);
  }, [hasContact]);
  return (
    <>
      {Object.entries(warnings).map(([about, text]) => (
        <div class="banner" role="alert" key={about}>
          <span>{text}</span>
          {about === "address" && (
            <Button main onClick={move}>
              {t.moveHere}
            </Button>
          )}
          {about === "notice" && <Button onClick={noticeSeen}>{t.noticeSeen}</Button>}
          {about === "history" && <Button onClick={goOn}>{t.goOnWithout}</Button>}
          {(about === "storage" || about === "backup") && (
            <Button onClick={() => setPanel({ is: "settings" })}>{t.backup}</Button>
          )}
          {about.startsWith("device ") && (
            <Button onClick={() => setPanel({ is: "settings" })}>{t.devices}</Button>
          )}
          <IconButton shape="close" label={t.hide} onClick={() => warn(about, null)} />
        </div>
      ))}
      <div class={`home ${conversation === null ? "" : "inside"}`}>
        <People selected={conversation} open={setPanel} />
        {conversation === null ? (
          <main class="nothing">
            <Icon shape="shield" />
            <p>{t.conversationsOpenHere}</p>
          </main>
        ) : (
          <ConversationView
            id={conversation}
            at={message}
            open={setPanel}
            key={`${conversation} ${message}`}
          />
        )}
      </div>
      {panel !== null && <PanelView panel={panel} open={setPanel} key={panel.is} />}
    </>
  );
}
